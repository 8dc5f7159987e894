/* exactness: how exact the text of a run or a part is, in words. */

/** "exact_for_settings" -> "exact for settings". */
export const label = (exactness) => exactness.replaceAll("_", " ");
