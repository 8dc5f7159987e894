/* Player: advances by itself, at a chosen speed. */

const SPEEDS = [
  { word: "1/s", aloud: "one step a second", wait: () => 1000 },
  { word: "2/s", aloud: "two steps a second", wait: () => 500 },
  { word: "8/s", aloud: "eight steps a second", wait: () => 125 },
  { word: "1×", aloud: "as fast as it was", wait: (seconds) => Math.max(33, Math.min(5000, 1000 * (seconds || 0))) },
];

/** begin() prepares and says whether there is anything to play; go() advances by one and says whether there is
 *  more; seconds() is how long the displayed step took; changed(on) is called when playing begins and ends. */
export function player({ pace = "2/s", begin, go, seconds, changed }) {
  let timer = 0, at = Math.max(0, SPEEDS.findIndex(({ word }) => word === pace)), announced = false;
  const tell = () => announced !== !!timer && changed(announced = !!timer);
  const plan = () => (timer = setTimeout(tick, SPEEDS[at].wait(seconds())));
  function tick() {
    timer = 0;
    if (go()) plan();
    tell();
  }
  function play(on) {
    clearTimeout(timer);
    timer = 0;
    if (on && begin()) plan();
    tell();
  }
  return {
    play,
    get playing() {
      return !!timer;
    },
    speed: () => SPEEDS[at],
    faster() {
      at = (at + 1) % SPEEDS.length;
      if (timer) clearTimeout(timer), plan();
    },
  };
}
