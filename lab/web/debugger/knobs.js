/* knobs: what the inputs of a part's knobs say. */

/** What a number input or a list says; null: nothing. */
const valueOf = (box) => (box.type !== "number" ? box.value : box.value === "" ? null : Number(box.value));

/** knob -> value, of all inputs in `element` that say something. */
export const values = (element) =>
  Object.fromEntries(
    [...element.querySelectorAll("[data-name]")].map((box) => [box.dataset.name, valueOf(box)]).filter(([, x]) =>
      x !== null
    )
  );
