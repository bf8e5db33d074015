"""Equations as our docstrings write them, in plain Unicode, turned into MathML.

Browsers render MathML by themselves, so the site needs no program and no foreign server for it,
and a docstring stays readable in a terminal. The grammar is what the equations use:

- letters stand for themselves; words are functions or, if not known as such, plain English;
- `h_t`, `W_hh`, `s_{i+1}` and `s₀` are subscripts, `Wᵀ`, `h⁻¹`, `y^(ℓ−1)`, `h^{p+1}`
  superscripts, `h'` is the next value;
- `√(…)` and `√x` are roots; two spaces part the equations of a line.
"""

import re
from html import escape

FUNCTIONS = {"arcsin", "cos", "cosh", "det", "diag", "exp", "log", "max", "min", "mod", "modReLU"}
FUNCTIONS |= {"relu", "sin", "sinh", "softmax", "tanh", "tr"}
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿᵀᴴᵏⁱʲˡˢᵗ", "0123456789+−()nTHkijlst", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼₖₗₘₙₚₛₜ", "0123456789+−ijklmnpst", strict=True))
DOUBLED = {"|", "‖"}
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}

TOKEN = re.compile(
    r"(?P<gap> {2,})|(?P<space> )|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<word>[A-Za-z](?:[A-Za-z]|-(?=[A-Za-z]))+(?![\u0300-\u036f]))"
    r"|(?P<letter>[^\W\d_][\u0300-\u036f]*)|(?P<sign>.)"
)
LETTERS = {"dt", "dx", "ds"}
"""Words that are products of letters."""


def equation(text: str) -> str:
    """Return the lines of an equation as HTML, one formula a line."""
    lines = [line for line in text.splitlines() if line.strip()]
    shown = [line if "`" in line else formula(line) for line in lines]
    return "\n\n".join(f'<div class="equation" markdown="0">{line}</div>' for line in shown)


def formula(text: str) -> str:
    """Return one formula as MathML; its plain text goes with it for who cannot see it."""
    inner = "".join(Reader(text).read())
    plain = escape(text.strip(), quote=True)
    return (
        f'<math xmlns="http://www.w3.org/1998/Math/MathML" alttext="{plain}">'
        f"<mstyle displaystyle='true'>{inner}</mstyle></math>"
    )


class Reader:
    """Reads a formula from left to right.

    Args:
        text: The formula.
    """

    def __init__(self, text: str) -> None:
        self.tokens = [(m.lastgroup or "", m.group()) for m in TOKEN.finditer(text.strip())]
        self.place = 0

    def read(self, until: str = "") -> list[str]:
        """Return the elements up to a closing bracket, or to the end."""
        found: list[str] = []
        while self.place < len(self.tokens):
            if until and self.tokens[self.place][1] == until:
                self.place += 1
                break
            found.append(self.element())
        return found

    def element(self) -> str:
        """Return one symbol with what stands at its corners."""
        base = self.symbol()
        below, above = [], []
        while self.place < len(self.tokens):
            token = self.tokens[self.place][1]
            if token == "_":
                self.place += 1
                below.append(self.argument())
            elif token == "^":
                self.place += 1
                above.append(self.argument())
            elif token == "'":
                # Raised by itself: as a superscript, a font without mathematics makes it a dot.
                self.place += 1
                base = f'<mrow>{base}<mo lspace="0" rspace="0">′</mo></mrow>'
            elif token in SUPERSCRIPTS:
                above.append(self.small(SUPERSCRIPTS))
            elif token in SUBSCRIPTS:
                below.append(self.small(SUBSCRIPTS))
            else:
                break
        if below and above:
            return f"<msubsup>{base}{row(below)}{row(above)}</msubsup>"
        if below:
            return f"<msub>{base}{row(below)}</msub>"
        return f"<msup>{base}{row(above)}</msup>" if above else base

    def symbol(self) -> str:
        """Return one symbol, word, number or root."""
        kind, token = self.tokens[self.place]
        self.place += 1
        if kind == "gap":
            return '<mspace width="2em"/>'
        if kind == "space":
            return '<mspace width="0.15em"/>'
        if kind == "number" or token == "½":
            return f"<mn>{token}</mn>"
        if kind == "word":
            return word(token)
        if kind == "letter" and token not in "ᵀᴴ":
            return f"<mi>{token}</mi>"
        if token == "√":
            return f"<msqrt>{self.argument(bare=True)}</msqrt>"
        if token in DOUBLED:
            return f'<mo stretchy="false" lspace="0" rspace="0">{token}</mo>'
        return (
            bracket(token) if token in OPENING or token in CLOSING else f"<mo>{escape(token)}</mo>"
        )

    def argument(self, bare: bool = False) -> str:
        """Return what belongs to a root, a subscript or a superscript.

        Args:
            bare: Whether round brackets only hold the argument together and are not shown.
        """
        kind, token = self.tokens[self.place]
        if token == "{" or (bare and token == "("):
            self.place += 1
            return row(self.read(OPENING[token]))
        if token == "(":
            self.place += 1
            return row([bracket("("), *self.read(")"), bracket(")")])
        if kind == "word":
            self.place += 1
            return row([f"<mi>{letter}</mi>" for letter in token])
        return self.symbol()

    def small(self, alphabet: dict[str, str]) -> str:
        """Return a run of small characters as the formula they stand for."""
        run = ""
        while self.place < len(self.tokens) and self.tokens[self.place][1] in alphabet:
            run += alphabet[self.tokens[self.place][1]]
            self.place += 1
        return row(Reader(run).read())


def word(token: str) -> str:
    """Return a function's name upright, a product of letters in italics, English as text."""
    if token in LETTERS:
        return "".join(f"<mi>{letter}</mi>" for letter in token)
    if token in FUNCTIONS:
        return f'<mi>{token}</mi><mspace width="0.1em"/>'
    return f"<mtext>\u00a0{token}\u00a0</mtext>"


def bracket(token: str) -> str:
    """Return a bracket of the size of a letter."""
    return f'<mo stretchy="false">{token}</mo>'


def row(elements: list[str]) -> str:
    """Return several elements as one."""
    return elements[0] if len(elements) == 1 else f"<mrow>{''.join(elements)}</mrow>"
