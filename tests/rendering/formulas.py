#!/usr/bin/env python3
"""Writes docs/reference/formulas.md: each formula of crates/render/tests/formulas.txt, as this project, TeX and two other front ends set it.

Needs a TeX installation (texlive-latex-recommended, texlive-latex-extra, texlive-science, texlive-pictures), poppler-utils and Pillow. The other front
ends are taken from what `front_ends.py` made, or stay as they are on the page.
"""
import argparse
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from front_ends import WRONG, cropped
from run import ROOT, Venue, formulas

PREAMBLE = r"""\documentclass[12pt]{article}
\usepackage[paperwidth=30cm,paperheight=12cm,margin=1cm]{geometry}
\usepackage{amsmath,amssymb,amscd,mathtools,bm,mathrsfs,xcolor,tikz-cd}
\usepackage[version=4]{mhchem}
\IfFileExists{cancel.sty}{\usepackage{cancel}}{\newcommand\cancel[1]{#1}\newcommand\bcancel[1]{#1}\newcommand\xcancel[1]{#1}}
\IfFileExists{esint.sty}{\usepackage{esint}}{\newcommand\oiint{\oint\!\!\oint}}
\pagestyle{empty}\parindent0pt
\begin{document}
"""


def tex_source(source):
    source = source.replace(r"\DeclareMathOperator{\sgn}{sgn}", r"\def\sgn{\operatorname{sgn}}")
    source = source.replace(r"\let\eps=\varepsilon", r"\let\eps\varepsilon").replace(r"\newcommand{\norm}", r"\def\norm{}\renewcommand{\norm}")
    if source.startswith((r"\begin{align*}", r"\begin{gather*}", r"\begin{equation*}")):
        return source
    if source.startswith((r"\newcommand", r"\def", r"\let")):
        return "$\\displaystyle " + source + "$"
    return "\\[\n" + source + "\n\\]"


def tex_images(sources):
    from PIL import Image
    with tempfile.TemporaryDirectory() as folder:
        body = "\n\\newpage\n".join("{" + tex_source(source) + "}" for source in sources)
        (Path(folder) / "all.tex").write_text(PREAMBLE + body + "\n\\end{document}\n")
        run = subprocess.run(["pdflatex", "-interaction=nonstopmode", "all.tex"], cwd=folder, capture_output=True, text=True, errors="replace")
        problems = [line for line in run.stdout.splitlines() if line.startswith("!")]
        for line in problems:
            print("TeX:", line, file=sys.stderr)
        subprocess.run(["pdftoppm", "-r", "144", "-png", "all.pdf", "page"], cwd=folder, check=True)
        pages = sorted(Path(folder).glob("page-*.png"))
        return [cropped(Image.open(io.BytesIO(page.read_bytes()))) for page in pages]


def main():
    from PIL import Image
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--front-ends", type=Path, default=ROOT / "target/front-ends")
    arguments = parser.parse_args()
    target = ROOT / "docs/reference/formulas"
    target.mkdir(parents=True, exist_ok=True)
    rows = formulas()
    supported = [source for kind, source in rows if kind != "unsupported"]
    theirs = dict(zip(supported, tex_images(supported)))
    others = {"mitex": "MiTeX 0.2.4", "mathml": "pulldown-latex 0.8.0"}

    page = ROOT / "docs/reference/formulas.md"
    before = page.read_text() if page.is_file() else ""

    def other_cell(kind, number):
        """The image of another front end and what is wrong with it, or its message."""
        if not arguments.front_ends.is_dir():
            row = next(line for line in before.splitlines() if line.startswith(f"| {number} |"))
            return re.split(r"(?<!\\) \| ", row.removesuffix(" |"))[-2 if kind == "mitex" else -1]
        made = arguments.front_ends / f"{number:03}.{kind}.png"
        if not made.is_file():
            message = made.with_name(f"{number:03}.{kind}-error").read_text().splitlines()[0]
            return message.replace("error: ", "").replace("parsing ", "").replace("|", "\\|")
        Image.open(made).convert("RGB").quantize(16).save(target / f"{number:03}-{kind}.png", optimize=True)
        wrong = WRONG[kind].get(number)
        return f"![](formulas/{number:03}-{kind}.png)" + (f" **{wrong}**" if wrong else "")

    lines = ["| | Source | catena | TeX | MiTeX | pulldown-latex |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        venue = Venue(str(Path(arguments.binary).resolve()), folder)
        try:
            failures = 0
            for number, (kind, source) in enumerate(rows, 1):
                content = {"object": {"content": {"format": "latex", "value": source}}}
                spec = {"formats": ["png"], "options": {"scale": 2, "background": "#ffffff"}}
                result = venue.run("object_render", content, spec)
                shown = source.replace("|", "\\|")
                if result["status"] == "SUCCEEDED":
                    image = Image.open(io.BytesIO(venue.files(result)["png"][1])).convert("RGB")
                    image.quantize(16).save(target / f"{number:03}.png", optimize=True)
                    wrong = WRONG["own"].get(number)
                    own = f"![](formulas/{number:03}.png)" + (f" **{wrong}**" if wrong else "")
                else:
                    failures += 1
                    own = result["error"]["message"].replace("|", "\\|")
                    print(f"{number}: {source}: {own}", file=sys.stderr)
                other = theirs.get(source)
                if other is not None:
                    other.quantize(16).save(target / f"{number:03}-tex.png", optimize=True)
                tex = f"![](formulas/{number:03}-tex.png)" if other else ""
                rest = " | ".join(other_cell(kind, number) for kind in others)
                lines.append(f"| {number} | `{shown}` | {own} | {tex} | {rest} |")
        finally:
            venue.stop()
    counts = {kind: len(list(target.glob(f"*-{kind}.png"))) for kind in others}
    table = ["| Front end | set | set as TeX does |", "|---|---|---|"]
    table += [f"| {name} | {counts[kind]} | {counts[kind] - len(WRONG[kind])} |" for kind, name in others.items()]
    done = len(rows) - failures
    table.insert(2, f"| catena | {done} | {done - len(WRONG['own'])} |")
    head = f"""# Formulas

The {len(rows)} formulas on which front ends were judged: fractions, roots, integrals, sums, matrices, cases, aligned systems, accents, scripts, operators,
relations, arrows, letters, text, delimiters, spaces, chemistry, commutative diagrams and macros. `tests/rendering/formulas.py` makes this page, and
`tests/rendering/front_ends.py` the images of the other front ends: MiTeX with the definitions of its package 0.2.7 and Typst 0.15, pulldown-latex as MathML
in Chromium with its own style sheet. All images were compared with those of TeX by eye; what differs is said in bold.

{chr(10).join(table)}

Those that catena does not set fail with a message that names the command.
"""
    page.write_text(head + "\n" + "\n".join(lines) + "\n")
    print("\n".join(table))


if __name__ == "__main__":
    main()
