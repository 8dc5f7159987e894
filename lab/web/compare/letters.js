/* letters: what runs that are compared are called there, and how many stand beside each other. */

export const LETTERS = "ABCD";
export const FEWEST = 2;
export const MOST = LETTERS.length;
