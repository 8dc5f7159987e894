/* exactness: how exact the text of a run or a part is, as people read it. */

/** "exact_for_settings" -> "exact for settings". */
export const label = (exactness) => exactness.replaceAll("_", " ");
