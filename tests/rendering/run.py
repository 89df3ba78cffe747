#!/usr/bin/env python3
"""Renders formulas and documents through a venue and checks the files with other libraries than those that wrote them.

qpdf and pypdf read the PDFs, Pillow the PNGs, and the XML parser of Python the SVGs. Everything is rendered again by a second venue with
another time zone, locale, user name, folder and number of processors, and must have the same digests.
"""
import argparse
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def uuid(number):
    return f"018f4d2e-0000-7000-8000-0000{number:08x}"


class Venue:
    def __init__(self, binary, folder, environment=None, prefix=()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [*prefix, binary, "serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--executors", "1",
                   "--data", str(self.folder / "data")]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env={**os.environ, **(environment or {})}, stderr=subprocess.PIPE, text=True)
        self.address = None
        for line in self.process.stderr:
            if "the venue is ready" in line:
                self.address = re.search(r"127\.0\.0\.1:\d+", line).group(0)
                break
        if self.address is None:
            raise SystemExit("the venue did not start")
        import threading
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def ask(self, method, path, body=None, data=None):
        request = urllib.request.Request(f"http://{self.address}{path}", method=method)
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, data=data, timeout=120) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def upload(self, content):
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        status, reply = self.ask("PUT", f"/contract/v1/datasets/{digest}", data=content)
        assert status == 200, reply
        return digest

    def run(self, job_type, inputs, spec):
        body = {"schema_version": "1.0", "job_type": job_type, "workspace_id": uuid(1), "project_id": uuid(2),
                "document_id": uuid(3), "document_revision_id": uuid(4), "target": {"object_id": uuid(5)},
                "inputs": inputs, "output_spec": spec}
        deadline = time.monotonic() + 120
        while True:
            status, reply = self.ask("POST", "/contract/v1/jobs", body)
            if status < 300:
                break
            if time.monotonic() > deadline or (status != 503 and b"UNSUPPORTED_JOB_TYPE" not in reply):
                raise SystemExit(f"{status}: {reply.decode()}")
            time.sleep(0.1)
        job = json.loads(reply)["job_id"]
        while True:
            _, reply = self.ask("GET", f"/contract/v1/jobs/{job}?wait=20000")
            result = json.loads(reply)
            if result["status"] not in ("PENDING", "QUEUED", "RUNNING"):
                return result

    def files(self, result):
        """Each artifact with its content, by format."""
        found = {}
        for artifact in result["artifacts"]:
            path = f"/contract/v1/jobs/{result['job_id']}/artifacts/{artifact['artifact_id']}"
            url = json.loads(self.ask("GET", path)[1])["url"]
            _, content = self.ask("GET", url[url.index("/contract"):])
            assert "sha256:" + hashlib.sha256(content).hexdigest() == artifact["digest"]
            found[artifact["format"]] = (artifact, content)
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def formulas():
    lines = (ROOT / "crates/render/tests/formulas.txt").read_text().splitlines()
    return [line.split("\t", 1) for line in lines]


def document(digest):
    words = "A sentence with some words that fills a line of the page. " * 20
    blocks = [
        {"type": "heading", "level": 1, "text": "Introduction", "label": "intro"},
        {"type": "text", "text": f"{words}\n\nA formula $e^{{i\\pi}} + 1 = 0$, a [link](https://example.org/), and [](#eq)."},
        {"type": "equation", "latex": "\\frac{\\partial u}{\\partial t} = \\alpha \\nabla^2 u", "label": "eq"},
        {"type": "equation", "latex": " + ".join(f"a_{{{n}}} x^{{{n}}}" for n in range(40))},
        {"type": "figure", "digest": digest, "caption": "A *figure*", "alt": "a formula", "label": "fig"},
        {"type": "heading", "level": 2, "text": "Data"},
        {"type": "table", "header": ["n", "square"], "rows": [[n, n * n] for n in range(60)], "caption": "Squares", "label": "tab"},
        {"type": "list", "ordered": False, "items": ["one", "two **bold**", "three `code`"]},
        {"type": "code", "language": "python", "text": "\n".join(f"print({n})" for n in range(80)), "output": "1\n2\n" + "x" * 300},
        {"type": "quote", "text": "It is *quoted*.", "attribution": "Somebody"},
        {"type": "divider"},
        {"type": "heading", "level": 2, "text": "End"},
        {"type": "notes", "text": "Speak slowly."},
        {"type": "text", "text": "See [](#fig), [](#tab) and [the start](#intro). Unsearchableword."},
    ]
    return {"title": "Heat", "authors": ["A. Author"], "lang": "en", "blocks": blocks}


def check_svg(content):
    tree = ElementTree.fromstring(content)
    for element in tree.iter():
        tag = element.tag.split("}")[-1]
        assert tag not in ("script", "foreignObject", "a"), tag
        for name, value in element.attrib.items():
            plain = name.split("}")[-1]
            assert not plain.startswith("on"), name
            assert plain != "href" or value.startswith(("#", "data:image/")), value


def check_png(content, artifact):
    from PIL import Image
    image = Image.open(io.BytesIO(content))
    image.load()
    metadata = artifact["metadata"]
    assert image.size == (metadata["width"], metadata["height"]), (image.size, metadata)
    return image


def check_pdf(content, folder, words):
    import pypdf
    path = Path(folder) / "document.pdf"
    path.write_bytes(content)
    checked = subprocess.run(["qpdf", "--check", str(path)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    reader = pypdf.PdfReader(io.BytesIO(content))
    text = "\n".join(page.extract_text() for page in reader.pages)
    flat = re.sub(r"\s+", "", text)
    for word in words:
        assert re.sub(r"\s+", "", word) in flat, f"{word!r} cannot be found in the PDF"
    assert reader.metadata.title == "Heat" and "A. Author" in (reader.metadata.author or ""), reader.metadata
    root = reader.trailer["/Root"]
    assert root["/Lang"] == "en" and "/StructTreeRoot" in root and root["/MarkInfo"]["/Marked"], root
    assert len(list(flatten(reader.outline))) >= 3, reader.outline
    for page in reader.pages:
        for font in (page["/Resources"].get("/Font") or {}).values():
            embedded(font.get_object())
    return len(reader.pages)


def flatten(outline):
    for item in outline:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            yield item


def embedded(font):
    descendants = font.get("/DescendantFonts")
    for one in descendants or [font]:
        descriptor = one.get_object().get("/FontDescriptor")
        keys = descriptor.get_object().keys() if descriptor else []
        is_type3 = font.get("/Subtype") == "/Type3"
        assert is_type3 or any(key in keys for key in ("/FontFile", "/FontFile2", "/FontFile3")), font


def check_html(content):
    text = content.decode()
    assert "<script" not in text and not re.search(r"(src|href)=\"(?!#|data:image/|https://example\.org/)", text.replace('xlink:href="#', 'xlink:href="#'))
    assert "http-equiv=\"Content-Security-Policy\"" in text


def everything(venue, folder, count):
    """Renders everything, checks it, and returns the digests by name."""
    digests = {}

    def note(name, result):
        assert result["status"] == "SUCCEEDED", (name, result.get("error"))
        found = venue.files(result)
        for kind, (artifact, _) in found.items():
            digests[f"{name} {kind}"] = artifact["digest"]
        return found

    figure = None
    for index, (kind, source) in enumerate(formulas()):
        if kind == "unsupported" or index >= count:
            continue
        content = {"object": {"type": "equation", "content": {"format": "latex", "value": source}}}
        found = note(f"formula {index}", venue.run("object_render", content, {"formats": ["svg", "png"]}))
        check_svg(found["svg"][1])
        image = check_png(found["png"][1], found["png"][0])
        assert image.getbbox() is not None, f"{source} is empty"
        figure = found["png"][0]["digest"]
    for view in ("document", "slide"):
        for kind in ("pdf", "html"):
            inputs = {"document": document(figure), "export_format": kind, "view_mode": view, "include_speaker_notes": True}
            found = note(f"{kind} {view}", venue.run("document_export", inputs, {"formats": [kind]}))
            if kind == "pdf":
                words = ["Introduction", "A sentence with some words", "Unsearchableword", "print(79)", "3481", "Speak slowly"]
                pages = check_pdf(found["pdf"][1], folder, words)
                assert pages == found["pdf"][0]["metadata"]["pages"] and pages > 3
                last_pdf = found["pdf"][0]["digest"]
            else:
                check_html(found["html"][1])
    for fit in ("contain", "cover"):
        for name, source in (("image", {"digest": figure}), ("pdf", {"digest": last_pdf}), ("document", {"document": document(figure)})):
            inputs = {**source, "width": 160, "height": 120, "fit": fit}
            found = note(f"thumbnail {name} {fit}", venue.run("thumbnail_generate", inputs, {"formats": ["png"]}))
            assert check_png(found["png"][1], found["png"][0]).size == (160, 120)
    return digests


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--formulas", type=int, default=100)
    arguments = parser.parse_args()
    binary = str(Path(arguments.binary).resolve())
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        prefix = ["taskset", "-c", "0"] if shutil.which("taskset") else []
        other = {"TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "LC_ALL": "C", "USER": "somebody", "HOME": folder}
        for name, environment, before in (("one", {}, []), ("two", {}, []), ("three", other, prefix)):
            venue = Venue(binary, Path(folder) / name, environment, before)
            try:
                runs.append(everything(venue, folder, arguments.formulas))
            finally:
                venue.stop()
        differing = [name for name in runs[0] if len({run.get(name) for run in runs}) != 1]
        assert not differing, f"not the same bytes: {differing}"
        print(f"{len(runs[0])} files are valid and were the same three times")


if __name__ == "__main__":
    sys.exit(main())
