/* Places: the common positions of several runs, counted by token or by clock. */
import { byClock, byToken, course } from "./alignment.js";

/** The place of the runs in `stores`: a number of tokens, or of seconds, as `way` says: "token" or "clock". */
export function places(stores, way) {
  const kept = [];
  const place = {
    way: way === "clock" ? "clock" : "token",
    token: 1,
    seconds: 0,
    following: true,
    ended: () => stores.every((store) => store.end),
    /** All courses, counted again when steps have come. */
    courses: () =>
      stores.map((store, k) => {
        const as = `${store.count} ${store.come}`;
        if (kept[k]?.as !== as)
          kept[k] = { as, whole: store.come === store.count,
            steps: course(store, kept[k]?.whole && kept[k].steps.length <= store.count ? kept[k].steps : []) };
        return kept[k].steps;
      }),
    /** The displayed steps. */
    steps: () =>
      place.courses().map((steps) =>
        place.following ? steps.length - 1
        : place.way === "token" ? byToken(steps, place.token) : byClock(steps, place.seconds)),
    here: () => (place.way === "token" ? place.token : place.seconds),
    /** Its beginning, as `seek` takes it. */
    first: () => (place.way === "token" ? { token: 1 } : { seconds: 0 }),
    /** The time of a place: a time is one already, a token has that of the run that writes it last. */
    clockOf: (there) => (place.way === "clock" ? there
      : Math.max(0, ...place.courses().map((steps) => (steps.length ? steps[byToken(steps, there)].end : 0)))),
    /** The next place (towards 1), or the one before (-1), at which one of the runs shows another step; else null. */
    next(towards) {
      const tokens = place.way === "token", here = place.here();
      let nearest = null;
      for (const steps of place.courses())
        for (const step of steps) {
          const x = tokens ? step.tokens : step.start;
          if ((x - here) * towards > 0 && (!tokens || x > 0) && (nearest === null || (nearest - x) * towards > 0))
            nearest = x;
        }
      return nearest;
    },
    move(there) {
      place[place.way === "token" ? "token" : "seconds"] = there;
      place.following = false;
    },
  };
  return place;
}
