/* Why a run ended, as a sentence. */
import { plural } from "./numbers.js";
import { named } from "./strip.js";

const ENDS = {
  stop_token: "The model ended the text.",
  max_new_tokens: "The run has as many tokens as were asked for.",
  stopped_by_user: "Stopped. It was ended by hand.",
  picture_full: "The picture is whole.",
  context_full: "The context of the model is full.",
  interrupted: "The run was interrupted; these are the steps that were kept.",
};
/** Why a run ended, as a sentence. */
export function ending(end) {
  if (!end.message) return ENDS[end.reason] || `The run ended: ${named(end.reason)}.`;
  if (["stop_token", "max_new_tokens", "context_full"].includes(end.reason)) return end.message;
  return `${end.message} ${plural(end.steps, "step")} ${end.steps === 1 ? "is" : "are"} kept and can be looked at.`;
}
