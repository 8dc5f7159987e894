/* letters: the letters that name compared runs, and how many runs fit side by side. */

export const LETTERS = "ABCD";
export const FEWEST = 2;
export const MOST = LETTERS.length;
