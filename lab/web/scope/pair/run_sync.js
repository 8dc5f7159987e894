/* Run sync: several runs move together to a token, to a time or by themselves; each shows its step there. */
import { byClock } from "./alignment.js";
import { player } from "../player.js";

/** place: of the runs; views: of them, as `mount` returns them. options: pace, onPlay, onSeek and onAlign of the
 *  pair; request(): ask for a drawing. */
export function runSync(place, views, options, request) {
  let own = false; // whether it is we who move the views
  const replay = player({
    pace: options.pace,
    begin() {
      if (place.next(1) === null && place.ended()) seek(place.first());
      return place.courses().some((steps) => steps.length);
    },
    go() {
      const there = place.next(1);
      if (there !== null) move(there);
      else if (!place.ended()) follow(true);
      return there !== null;
    },
    seconds() {
      const there = place.next(1);
      return there === null ? 0 : Math.abs(place.clockOf(there) - place.clockOf(place.here()));
    },
    changed: (on) => (options.onPlay?.(on), request()),
  });

  function to(way) {
    if (way === Infinity) return follow(true);
    if (way === -Infinity) return seek(place.first());
    replay.play(false);
    for (let k = 0; k < Math.abs(way); k++) {
      const there = place.next(Math.sign(way));
      if (there !== null) move(there);
    }
  }
  /** Go to a token or a time, whichever the way counts. */
  function move(there) {
    place.move(there);
    show();
  }
  function show() {
    own = true;
    place.steps().forEach((i, k) =>
      place.following ? views[k].follow(true)
      : i >= 0 && (views[k].at !== i || views[k].following) && views[k].seek(i));
    own = false;
    options.onSeek?.({ token: place.token, seconds: place.seconds });
    request();
  }
  /** Awaited steps have come: go there, though nobody moved. */
  function arrive(at) {
    own = true;
    at.forEach((i, k) => i >= 0 && views[k].at !== i && views[k].seek(i));
    own = false;
  }
  /** A reader went to a step of one run. */
  function moved(which, i) {
    if (own) return;
    const step = place.courses()[which][i];
    if (!step) return;
    replay.play(false);
    Object.assign(place, { token: Math.max(1, step.tokens), seconds: step.start, following: false });
    show();
  }
  /** @param {{token?: number, seconds?: number}} wanted */
  function seek({ token, seconds }) {
    replay.play(false);
    if (token !== undefined) place.token = Math.max(1, token);
    if (seconds !== undefined) place.seconds = Math.max(0, seconds);
    place.following = false;
    show();
  }
  /** Go to the position of run `which` at a time. */
  function seekTime(which, seconds) {
    const steps = place.courses()[which];
    if (place.way === "clock") seek({ seconds });
    else if (steps.length) seek({ token: Math.max(1, steps[byClock(steps, seconds)].tokens) });
  }
  function follow(on) {
    place.following = on;
    if (on) replay.play(false);
    show();
  }
  function align(way, at = null) {
    const [steps] = place.courses(), [here] = place.steps(), changed = way !== place.way;
    if (changed && steps.length)
      Object.assign(place,
        way === "clock" ? { seconds: steps[here].start } : { token: Math.max(1, steps[here].tokens) });
    place.way = way === "clock" ? "clock" : "token";
    if (changed) options.onAlign?.(place.way);
    if (at !== null) seek({ token: at });
    else show();
  }
  return { replay, to, arrive, moved, seek, seekTime, follow, align };
}
