"""Templates of log lines, found as they come: Drain's fixed-depth tree, in bounded memory.

A line's words lead down the tree: first their number, then the first `prefix_words` of them. In the leaf the most
similar template is chosen; if it is similar enough, words that differ become wildcards, else the line founds a
template. Whoever wants numbers, paths and the like to be wildcards from the start masks lines first (`masking.mask`).

Source: P. He et al., "Drain: An Online Log Parsing Approach with Fixed Depth Tree", ICWS 2017. The wildcard for
words with digits in the tree, and what happens when a node is full, are drain3's. What is bounded here and not there:
a template that is forgotten leaves its leaf and every node that only it had needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from operator import eq
from typing import Any, Self

from perdure.errors import InputError

WILDCARD = "<*>"
FORMAT = 1
FIX = "Make it again: it is written by `TemplateTree.state`"


@dataclass(frozen=True, slots=True)
class Shape:
    """How wide the tree is, and how alike lines of one template are."""

    similar_from: float = 0.4  # share of words that agree, wildcards not counted
    prefix_words: int = 1
    max_children: int = 100  # of a node, the wildcard among them
    max_in_leaf: int = 64
    max_templates: int = 1000
    max_words: int = 64  # of a line: the rest is cut off


@dataclass(slots=True)
class Template:
    """What lines of one kind have in common."""

    id: int  # counts from 1 in the order of founding; never given twice
    words: tuple[str, ...]
    lines: int = 1  # that were learnt into it
    used: int = 0  # when it was last, by the count of lines

    def __str__(self) -> str:
        return " ".join(self.words)


@dataclass(slots=True)
class _Node:
    below: dict[str, _Node] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)  # in a leaf: of its templates, in the order of founding


class TemplateTree:
    """Templates of the lines learnt so far; the same lines in the same order give the same tree."""

    def __init__(self, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        self._root = _Node()
        self._templates: OrderedDict[int, Template] = OrderedDict()  # least recently used first
        self._founded = self._lines = 0

    def __len__(self) -> int:
        return len(self._templates)

    def __iter__(self) -> Iterator[Template]:
        """The templates in the order of founding."""
        return iter(sorted(self._templates.values(), key=lambda template: template.id))

    def learn(self, line: str) -> Template:
        """The template that the line belongs to now, which may be new; the least recently used may be forgotten."""
        words = self._words(line)
        self._lines += 1
        template = self._most_similar(self._leaf(words), words)
        if template is None:
            return self._found(words)
        template.words = tuple(a if a == b else WILDCARD for a, b in zip(template.words, words, strict=True))
        template.lines += 1
        template.used = self._lines
        self._templates.move_to_end(template.id)
        return template

    def match(self, line: str) -> Template | None:
        """The template that has every word of the line, or a wildcard in its place; None where there is none."""
        words = self._words(line)
        below = self._root.below.get(str(len(words)))
        leaves = _leaves(below, self._path(words)) if below else ()
        fitting = (self._templates[i] for leaf in leaves for i in leaf.ids if _fits(self._templates[i].words, words))
        return min(fitting, key=lambda template: template.words.count(WILDCARD), default=None)

    def _words(self, line: str) -> tuple[str, ...]:
        return tuple(line.split(None, self.shape.max_words)[: self.shape.max_words])

    def _path(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The words that lead to the leaf: the last word of a line never does."""
        return words[: min(self.shape.prefix_words, max(0, len(words) - 1))]

    def _leaf(self, words: tuple[str, ...]) -> _Node | None:
        node = self._root.below.get(str(len(words)))
        for word in self._path(words):
            if node is None:
                return None
            node = node.below.get(word) or node.below.get(WILDCARD)
        return node

    def _most_similar(self, leaf: _Node | None, words: tuple[str, ...]) -> Template | None:
        best, best_alike, best_wild = None, -1, -1
        for i in leaf.ids if leaf else ():
            template = self._templates[i]
            alike, wild = sum(map(eq, template.words, words)), template.words.count(WILDCARD)
            if (alike, wild) > (best_alike, best_wild):
                best, best_alike, best_wild = template, alike, wild
        share = best_alike / len(words) if words else 1.0
        return best if share >= self.shape.similar_from else None

    def _found(self, words: tuple[str, ...]) -> Template:
        self._founded += 1
        template = Template(self._founded, words, used=self._lines)
        if len(self._templates) >= self.shape.max_templates:
            self._forget(next(iter(self._templates)))
        leaf = self._grown_leaf(words)
        if len(leaf.ids) >= self.shape.max_in_leaf:
            self._forget(min(leaf.ids, key=lambda i: self._templates[i].used))
            leaf = self._grown_leaf(words)
        leaf.ids.append(template.id)
        self._templates[template.id] = template
        return template

    def _grown_leaf(self, words: tuple[str, ...]) -> _Node:
        node = self._root.below.setdefault(str(len(words)), _Node())
        for word in self._path(words):
            node = node.below.setdefault(self._branch(node, word), _Node())
        return node

    def _branch(self, node: _Node, word: str) -> str:
        """The word itself, or the wildcard: for words with digits, and where no room is left but for it."""
        if word in node.below:
            return word
        room = self.shape.max_children - len(node.below) - (WILDCARD not in node.below)
        return WILDCARD if room <= 0 or any(map(str.isdigit, word)) else word

    def _forget(self, template_id: int) -> None:
        """Take a template out, and the nodes that held nothing else."""
        way = self._way_to(self._templates.pop(template_id))
        leaf, word = way[-1]
        leaf.below[word].ids.remove(template_id)
        for node, name in reversed(way):
            below = node.below[name]
            if not below.ids and not below.below:
                del node.below[name]

    def _way_to(self, template: Template) -> list[tuple[_Node, str]]:
        """The nodes above a template's leaf, each with the branch that is taken there; empty where it has none."""
        return _way(self._root, (str(len(template.words)), *self._path(template.words)), template.id)

    # ---------------------------------------------------------------- as data

    def state(self) -> dict[str, Any]:
        """The tree as JSON can hold it; `of_state` goes on where this one stands."""
        return {
            "format": FORMAT,
            "shape": asdict(self.shape),
            "founded": self._founded,
            "templates": [[t.id, t.lines, list(t.words)] for t in self._templates.values()],
            "tree": _as_data(self._root),
        }

    @classmethod
    def of_state(cls, state: Mapping[str, Any], source: str = "templates") -> Self:
        """The tree that `state` was taken of. Raises `InputError`, naming `source`, for anything else."""
        if not isinstance(state, Mapping) or state.get("format") != FORMAT:
            raise InputError(source, f"not templates of format {FORMAT}", FIX)
        try:
            tree = cls(Shape(**state["shape"]))
            tree._founded = int(state["founded"])
            for i, lines, words in state["templates"]:
                tree._lines += 1
                tree._templates[int(i)] = Template(int(i), tuple(map(str, words)), int(lines), tree._lines)
            tree._root = _of_data(state["tree"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as err:
            raise InputError(source, f"damaged templates ({err})", FIX) from err
        listed = sorted(tree._templates)
        if sorted(_ids(tree._root)) != listed or not all(tree._way_to(tree._templates[i]) for i in listed):
            raise InputError(source, "damaged templates (the tree and the list disagree)", FIX)
        return tree


def _leaves(node: _Node, path: tuple[str, ...]) -> Iterator[_Node]:
    """All leaves in which a line's template may stand: it may have been learnt while a word had no branch."""
    if not path:
        yield node
        return
    for name in dict.fromkeys((path[0], WILDCARD)):
        if (below := node.below.get(name)) is not None:
            yield from _leaves(below, path[1:])


def _way(node: _Node, path: tuple[str, ...], template_id: int) -> list[tuple[_Node, str]]:
    """Down from `node`: a template founded under the wildcard may have kept its own word."""
    for name in dict.fromkeys((path[0], WILDCARD)):
        below = node.below.get(name)
        if below is None:
            continue
        if len(path) > 1:
            if way := _way(below, path[1:], template_id):
                return [(node, name), *way]
        elif template_id in below.ids:
            return [(node, name)]
    return []


def _fits(template: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return all(a in (b, WILDCARD) for a, b in zip(template, words, strict=True))


def _as_data(node: _Node) -> list[Any]:
    return [{word: _as_data(below) for word, below in node.below.items()}, node.ids]


def _of_data(data: list[Any]) -> _Node:
    below, ids = data
    return _Node({str(word): _of_data(node) for word, node in below.items()}, [int(i) for i in ids])


def _ids(node: _Node) -> Iterator[int]:
    yield from node.ids
    for below in node.below.values():
        yield from _ids(below)
