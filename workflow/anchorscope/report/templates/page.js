// The contents say which section is being read, and a link into a folded section unfolds it.
const named = (place) => decodeURIComponent(place.hash.slice(1));
const links = new Map([...document.querySelectorAll("#contents a")].map((link) => [named(link), link]));
const places = [...links.keys()].map((name) => document.getElementById(name));

function mark() {
  const line = innerHeight / 3;
  const above = places.filter((place) => place.getBoundingClientRect().top <= line);
  const here = links.get((above.at(-1) ?? places[0]).id);
  for (const link of links.values()) {
    if (link === here) {
      if (link.ariaCurrent) return;
      link.ariaCurrent = "true";
      const bar = link.parentElement;
      bar.scrollTo({ left: link.offsetLeft - bar.clientWidth / 2, top: link.offsetTop - bar.clientHeight / 2 });
    } else link.ariaCurrent = null;
  }
}

function unfold() {
  const target = document.getElementById(named(location));
  if (!target) return;
  for (let part = target.querySelector(":scope > details") ?? target; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") part.open = true;
  }
  target.scrollIntoView();
}

addEventListener("scroll", mark, { passive: true });
addEventListener("resize", mark);
addEventListener("hashchange", unfold);
unfold();
mark();
