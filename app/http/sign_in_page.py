"""Sign-in page: plain HTML without scripts, for a name and a password, for a token, or to sign out."""

from __future__ import annotations

from html import escape

from decodescope.lab.formatting.style import DARK, LIGHT, SANS

USED = ("bg", "panel", "line", "edge", "ink", "muted", "reject", "accept", "target")
LOGO = (
    '<svg viewBox="0 0 30 22" width="30" height="22" aria-hidden="true" fill="none" stroke-width="2">'
    '<path d="M4,6H24" stroke="var(--edge)"/><path d="M4,6H9Q12,6 12,9V14Q12,17 15,17H25" stroke="var(--accept)"/>'
    '<rect x="1" y="3" width="6" height="6" fill="var(--ink)"/><circle cx="24" cy="6" r="3.5" fill="var(--bg)" '
    'stroke="var(--reject)"/><circle cx="25" cy="17" r="3.5" fill="var(--accept)"/></svg>'
)


def _colours(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{values[name]};" for name in USED)


FONT = ", ".join(f'"{name}"' if " " in name else name for name in SANS)
STYLE = f"""
:root {{ color-scheme: light dark; {_colours(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_colours(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 {FONT}; }}
header {{ display: flex; gap: 10px; align-items: center; height: 52px; padding: 0 24px; border-bottom: 1px solid var(--line);
  font-weight: 600; font-size: 16px; letter-spacing: -.01em; }}
main {{ max-width: 408px; margin: 0 auto; padding: 12vh 24px 48px; }}
h1 {{ margin: 0 0 4px; font-size: 20px; }}
p {{ margin: 0 0 20px; color: var(--muted); }}
p.wrong {{ margin-top: 8px; padding: 8px 12px; border-left: 3px solid var(--reject); background: var(--panel);
  color: var(--ink); }}
label {{ display: block; margin: 0 0 16px; font-weight: 600; font-size: 13px; }}
input {{ display: block; width: 100%; height: 40px; margin-top: 4px; padding: 0 10px; border: 1px solid var(--edge);
  border-radius: 6px; background: var(--bg); color: var(--ink); font: inherit; font-weight: 400; font-size: 16px; }}
button {{ height: 40px; padding: 0 20px; border: 1px solid var(--ink); border-radius: 6px; background: var(--ink);
  color: var(--bg); font: inherit; font-weight: 600; cursor: pointer; }}
a {{ margin-left: 16px; color: var(--ink); }}
:is(input, button, a):focus-visible {{ outline: 2px solid var(--accept); outline-offset: 2px; }}
"""
PASSWORD = (
    '<label>Name<input name="name" autocomplete="username" autocapitalize="none" spellcheck="false" maxlength="64" required '
    'autofocus></label><label>Password<input name="password" type="password" autocomplete="current-password" required></label>'
)
TOKEN = (
    '<label>Token<input name="token" type="password" autocomplete="off" autocapitalize="none" spellcheck="false" required '
    "autofocus></label>"
)
ASKS = {
    True: "Use the name and password that the owner of this lab gave you.",
    False: "Open the address that the server printed when it was started, or enter the token at the end of it.",
}


def sign_in_page(action: str, named: bool, wrong: str = "") -> bytes:
    """The page with the form. action: its address;  named: ask for name and password, not the token;  wrong: what was wrong"""
    said = f'<p class="wrong" role="alert">{escape(wrong)}</p>' if wrong else f"<p>{ASKS[named]}</p>"
    fields = PASSWORD if named else TOKEN
    return _page(
        f'<h1>Sign in</h1>{said}<form method="post" action="{action}">{fields}<button>Sign in</button></form>'
    )


def sign_out_page(name: str) -> bytes:
    """The page with the button that signs out."""
    who = f"You are signed in as {escape(name)}." if name else "You are signed in with the token of this lab."
    form = '<form method="post" action="sign-out"><button>Sign out</button><a href="../">Back to the lab</a></form>'
    return _page(f"<h1>Sign out</h1><p>{who} Runs that are going go on without you.</p>{form}")


def refusal_page(sentence: str) -> bytes:
    """A page that says why nobody is let in."""
    return _page(f"<h1>Sign in</h1><p>{escape(sentence)}</p>")


def _page(content: str) -> bytes:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>DecodeScope: sign in</title><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><header>{LOGO}<span>DecodeScope</span></header><main>{content}</main></body></html>"
    ).encode()
