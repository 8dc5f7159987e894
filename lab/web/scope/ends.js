/* Why a run ended, and which parts did nothing in it, in sentences. */
import { plural } from "./shared/numbers.js";
import { spaced } from "./strip.js";

const ENDS = {
  stop_token: "The model ended the text.",
  max_new_tokens: "The run has as many tokens as were asked for.",
  stopped_by_user: "Stopped. It was ended by hand.",
  picture_full: "The picture is whole.",
  interrupted: "The run was interrupted; these are the steps that were kept.",
};
/** Why a run ended, and the notes there. */
export function endText(end) {
  const all = !end.message || ["stop_token", "max_new_tokens", "context_full"].includes(end.reason);
  return [end.message || ENDS[end.reason] || `The run ended: ${spaced(end.reason)}.`,
    all ? "" : `${plural(end.steps, "step")} ${end.steps === 1 ? "is" : "are"} kept and can be looked at.`,
    ...(end.notes || [])].filter(Boolean).join(" ");
}
