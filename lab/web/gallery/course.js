/* course: the runs of a notebook, drawn at the places of their cells, as soon as they come near the viewport. */
import { extra, mount } from "../scope.js";

/** Draw `all` in their places; shade() says light or dark. Call the returned function to draw them again, light or
 *  dark. */
export function course(all, shade) {
  const views = [];
  const draw = (place, one) => {
    if (one.runs) {
      const both = extra("pair").pair(place, { views: one.views || undefined, align: one.align, theme: shade() });
      one.runs.forEach((messages, which) => messages.forEach((message) => both.views[which].push(message)));
      both.seek({ token: Math.max(1, one.token) });
      return views.push(both);
    }
    const view = mount(place, { views: one.views || undefined, theme: shade(), label: "recorded run" });
    for (const message of one.messages) view.push(message);
    view.seek(Math.max(0, one.step));
    return views.push(view);
  };
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      draw(target, all[Number(target.id.slice("live-".length))]);
    }
  }, { rootMargin: "600px" });
  document.querySelectorAll(".live").forEach((place) => near.observe(place));
  return () => views.forEach((view) => view.theme(shade()));
}
