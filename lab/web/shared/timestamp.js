/* timestamp: a time in words. */

/** A time, seconds since 1970: today 14:05, Monday, 3 Feb. */
export const timestamp = (seconds) => {
  const at = new Date(1000 * seconds),
    days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(at).setHours(0, 0, 0, 0)) / 86400000);
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (days < 2) return `${["today", "yesterday"][Math.max(0, days)]} ${time}`;
  return at.toLocaleDateString("en-GB",
    days < 7 ? { weekday: "long" } : { day: "numeric", month: "short", ...(days > 300 ? { year: "numeric" } : {}) });
};
