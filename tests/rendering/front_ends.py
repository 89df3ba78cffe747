#!/usr/bin/env python3
"""Sets the formulas of crates/render/tests/formulas.txt with MiTeX and pulldown-latex, for `formulas.py --front-ends`.

MiTeX writes markup of Typst that needs definitions which are not part of its crate: they are in `packages/mitex` of its repository. pulldown-latex
writes MathML, which Chromium shows with the style sheet of the crate and the same math font. Needs cargo, Chromium, and the Python packages `typst`
and Pillow.
"""
import argparse
import subprocess
from pathlib import Path

from run import ROOT, formulas

MANIFEST = """[package]
name = "front-ends"
version = "0.1.0"
edition = "2024"

[workspace]

[dependencies]
mitex = "=0.2.4"
pulldown-latex = "=0.8.0"
"""

PROGRAM = r"""
use std::fs::write;

use pulldown_latex::config::DisplayMode;
use pulldown_latex::{Parser, RenderConfig, Storage, push_mathml};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (sources, out) = (arguments.next().unwrap(), arguments.next().unwrap());
    for (index, line) in std::fs::read_to_string(sources).unwrap().lines().enumerate() {
        let source = line.split_once('\t').unwrap().1;
        let path = |kind: &str| format!("{out}/{:03}.{kind}", index + 1);
        match std::panic::catch_unwind(|| mitex::convert_math(source, None)) {
            Ok(Ok(markup)) => write(path("mitex"), markup).unwrap(),
            Ok(Err(error)) => write(path("mitex-error"), error).unwrap(),
            Err(_) => write(path("mitex-error"), "it panics").unwrap(),
        }
        let storage = Storage::new();
        let wrong = Parser::new(source, &storage).find_map(Result::err);
        if let Some(error) = wrong {
            write(path("mathml-error"), error.to_string()).unwrap();
            continue;
        }
        let (storage, mut text) = (Storage::new(), String::new());
        let config = RenderConfig { display_mode: DisplayMode::Block, ..RenderConfig::default() };
        push_mathml(&mut text, Parser::new(source, &storage), config).unwrap();
        write(path("mathml"), text).unwrap();
    }
}
"""

# What is set and differs from TeX, as seen by comparing the images.
WRONG = {
    "own": {},
    "mitex": {
        51: "no line", 52: "too large", 54: "no lines", 57: "columns without a gap", 67: "brace too low", 104: "no space after the operator",
        111: "struck out", 120: "the label below is lost", 134: "sans is italic", 143: "not emphasized", 151: "space in the bars",
        156: "space in the bars", 188: "one stroke of two",
    },
    "mathml": {
        12: "upright μ", 31: "&nbsp; is shown", 42: "the star is not read", 52: "too large", 59: "small integral", 63: "small fractions",
        74: "does not stretch", 75: "does not stretch", 76: "does not stretch", 91: "upright μ", 104: "a command as text", 108: "&nbsp; is shown",
        125: "upright μ", 134: "&nbsp; is shown", 140: "dollar signs are shown", 143: "a command as text", 159: "&nbsp; is shown",
        194: "upright μ", 196: "upright μ", 199: "scripts are lost",
    },
}


def cropped(image):
    from PIL import Image, ImageChops
    flat = image.convert("RGB")
    box = ImageChops.difference(flat, Image.new("RGB", flat.size, "white")).getbbox()
    return flat.crop((max(box[0] - 4, 0), max(box[1] - 4, 0), box[2] + 4, box[3] + 4)) if box else None


def set_mitex(folder, package):
    import typst
    from PIL import Image
    for path in sorted(folder.glob("*.mitex")):
        quoted = path.read_text().replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        source = package / "front-end.typ"
        source.write_text(
            '#import "/specs/mod.typ": mitex-scope\n#set page(width:auto,height:auto,margin:12pt)\n'
            '#set text(size:12pt,font:"New Computer Modern")\n#show math.equation:set text(font:"New Computer Modern Math")\n'
            f'#math.equation(block:true,eval("$"+"{quoted}"+"$",scope:mitex-scope))\n')
        target = path.with_suffix(".mitex.png")
        try:
            typst.compile(str(source), output=str(target), root=str(package), ppi=144.0)
        except Exception as error:
            path.with_suffix(".mitex-error").write_text(f"Typst: {error}")
            continue
        finally:
            source.unlink()
        cropped(Image.open(target)).save(target)


def set_mathml(folder):
    from PIL import Image
    crates = Path.home() / ".cargo/registry/src"
    font = next(crates.glob("*/typst-assets-0.15*/files/fonts/NewCMMath-Regular.otf"))
    style = next(crates.glob("*/pulldown-latex-0.8.0/styles.css")).read_text()
    style += (f'@font-face{{font-family:M;src:url("{font.as_uri()}")}}html,body{{margin:0;background:#fff}}math{{font-family:M;font-size:16px}}'
              "div{height:200px;width:1400px;overflow:hidden;box-sizing:border-box;padding:20px}math[display=block]{display:inline math}")
    paths = sorted(folder.glob("*.mathml"))
    for first in range(0, len(paths), 50):
        some = paths[first:first + 50]
        page, shot = folder / "page.html", folder / "page.png"
        body = "".join(f"<div>{path.read_text()}</div>" for path in some)
        page.write_text(f"<!doctype html><meta charset=utf-8><style>{style}</style>{body}")
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
             "--force-device-scale-factor=1.5", f"--window-size=1400,{200 * len(some)}", "--virtual-time-budget=3000",
             f"--screenshot={shot}", page.as_uri()], check=True, capture_output=True)
        image = Image.open(shot)
        for index, path in enumerate(some):
            found = cropped(image.crop((0, 300 * index, 2100, 300 * (index + 1))))
            if found:
                found.save(path.with_suffix(".mathml.png"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mitex", required=True, type=Path, help="the folder packages/mitex of the repository of MiTeX")
    parser.add_argument("--out", type=Path, default=ROOT / "target/front-ends")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    (out / "src").mkdir(parents=True, exist_ok=True)
    (out / "Cargo.toml").write_text(MANIFEST)
    (out / "src/main.rs").write_text(PROGRAM)
    sources = str(ROOT / "crates/render/tests/formulas.txt")
    subprocess.run(["cargo", "run", "--quiet", "--release", "--", sources, str(out)], cwd=out, check=True)
    set_mitex(out, arguments.mitex.resolve())
    set_mathml(out)
    for kind in ("mitex", "mathml"):
        made = len(list(out.glob(f"*.{kind}.png")))
        print(f"{kind}: {made} of {len(formulas())} are set, {made - len(WRONG[kind])} of them as TeX does")


if __name__ == "__main__":
    main()
