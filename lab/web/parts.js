/* parts: how the page fetches what few runs need of the drawing; scope/extras.js says which messages ask for it. */

/** Name -> a function that begins to fetch it. */
export const loads = {
  canvas: () => import("./scope/canvas.js"),
  depth: () => import("./scope/depth.js"),
  model: () => import("./scope/model.js"),
  pair: () => import("./scope/pair.js"),
  picture: () => import("./scope/picture.js"),
  repeats: () => import("./scope/repeats.js"),
  scale: () => import("./scope/scale.js"),
  prompt_compression: () => import("./scope/prompt_compression.js"),
  survey: () => import("./scope/survey.js"),
  threads: () => import("./scope/threads.js"),
  trees: () => import("./scope/trees.js"),
  turns: () => import("./scope/turns.js"),
};
