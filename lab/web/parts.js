/* parts: how the page fetches the parts of the drawing that few runs need; scope/shared/extras.js says which
 * messages need them. */

/** Name -> a function that begins to fetch it. */
export const loads = {
  canvas: () => import("./scope/canvas/canvas.js"),
  depth: () => import("./scope/model/depth.js"),
  entries: () => import("./scope/cache/entries.js"),
  model: () => import("./scope/model/model.js"),
  pair: () => import("./scope/pair/pair.js"),
  picture: () => import("./scope/canvas/picture.js"),
  repeats: () => import("./scope/text/repeats.js"),
  scale: () => import("./scope/details/scale.js"),
  prompt_compression: () => import("./scope/text/prompt_compression.js"),
  survey: () => import("./scope/details/survey.js"),
  threads: () => import("./scope/tree/threads.js"),
  trees: () => import("./scope/tree/trees.js"),
  turns: () => import("./scope/details/turns.js"),
};
