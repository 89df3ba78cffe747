#!/usr/bin/env python3
"""Writes docs/reference/formulas.md: each formula of crates/render/tests/formulas.txt, as this project and as TeX set it.

Needs a TeX installation (texlive-latex-base, texlive-latex-recommended, texlive-science, texlive-pictures), poppler-utils and Pillow.
"""
import argparse
import io
import subprocess
import sys
import tempfile
from pathlib import Path

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


def cropped(image):
    from PIL import Image, ImageChops
    flat = image.convert("RGB")
    box = ImageChops.difference(flat, Image.new("RGB", flat.size, "white")).getbbox()
    if box is None:
        return None
    return flat.crop((max(box[0] - 4, 0), max(box[1] - 4, 0), box[2] + 4, box[3] + 4))


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
    arguments = parser.parse_args()
    target = ROOT / "docs/reference/formulas"
    target.mkdir(parents=True, exist_ok=True)
    rows = formulas()
    supported = [source for kind, source in rows if kind != "unsupported"]
    theirs = dict(zip(supported, tex_images(supported)))
    lines = ["# Formulas", "",
             "The 200 formulas on which the front end was judged, as `object_render` sets them and as TeX does. `tests/rendering/formulas.py` makes this page.", "",
             "| | Source | catena | TeX |", "|---|---|---|---|"]
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
                    own = f"![](formulas/{number:03}.png)"
                else:
                    failures += 1
                    own = result["error"]["message"].replace("|", "\\|")
                    print(f"{number}: {source}: {own}", file=sys.stderr)
                other = theirs.get(source)
                if other is not None:
                    other.quantize(16).save(target / f"{number:03}-tex.png", optimize=True)
                lines.append(f"| {number} | `{shown}` | {own} | {f'![](formulas/{number:03}-tex.png)' if other else ''} |")
        finally:
            venue.stop()
    lines += ["", f"{len(rows) - failures} of {len(rows)} are set; the others name the command that is not known."]
    (ROOT / "docs/reference/formulas.md").write_text("\n".join(lines) + "\n")
    print(lines[-1])


if __name__ == "__main__":
    main()
