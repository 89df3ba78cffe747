#!/usr/bin/env python3
"""Renders formulas and documents through a venue and checks the files with other libraries than those that wrote them.

qpdf, pypdf, Poppler and, where Maven can install it, veraPDF read the PDFs, Pillow the PNGs, and the XML parser of Python the SVGs.
Everything is rendered again by another venue with another clock, time zone, locale, user, folder and number of processors, and must have
the same digests.
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

    def started(self):
        """The processes that this one started, and those that they started."""
        found, rest = [], [self.process.pid]
        while rest:
            process = rest.pop()
            for thread in Path(f"/proc/{process}/task").glob("*/children"):
                children = read_if_there(thread).split()
                found += children
                rest += children
        return found

    def stop(self):
        # `unshare` waits for the venue and passes no signal on.
        name = Path(f"/proc/{self.process.pid}/comm").read_text().strip()
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        os.kill(int(children[0]) if name == "unshare" else self.process.pid, signal.SIGTERM)
        self.process.wait(30)


# The wall clock of a process that loads this is years ahead. The clock of timers is moved by a time namespace instead (see `another_host`), because
# the kernel reads it, too.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += %d;
    return result;
}
"""
AHEAD_S = 300_000_000


def with_another_clock(binary, folder):
    """A copy of the binary whose processes, also those in the sandbox, see another time; or why there is none.

    The sandbox passes no variables on, so `LD_PRELOAD` would not reach the renderer. A library that the binary itself needs does.
    """
    for tool, package in (("cc", "a C compiler"), ("patchelf", "patchelf")):
        if shutil.which(tool) is None:
            return None, f"{package} is missing"
    source, library, copy = folder / "clock.c", folder / "libclock.so", folder / "catena-clock"
    source.write_text(CLOCK % AHEAD_S)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    shutil.copy(binary, copy)
    subprocess.run(["patchelf", "--add-needed", str(library), str(copy)], check=True)
    for path in (folder, library, copy):
        path.chmod(0o755)
    return str(copy), None


def read_if_there(path):
    """The text of a file of a process, which may have ended: renderers are used once."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def sees_another_time(venue, result):
    """Whether the venue and its renderer have the other clock."""
    from datetime import datetime
    created = datetime.fromisoformat(result["created_at"].replace("Z", "+00:00")).timestamp()
    renderers = [pid for pid in venue.started() if "sandbox-child" in read_if_there(Path(f"/proc/{pid}/cmdline"))]
    maps = [maps for pid in renderers if (maps := read_if_there(Path(f"/proc/{pid}/maps")))]
    return created > time.time() + AHEAD_S / 2 and maps and all("libclock.so" in one for one in maps)


def another_host(folder, is_readable):
    """The command before a venue that makes it another user, on one processor, in a system that started at another time."""
    prefix = []
    if os.geteuid() == 0:
        shifted = ["unshare", "--time", "--monotonic", "1000000", "--boottime", "1000000", "--fork"]
        if subprocess.run([*shifted, "true"], capture_output=True).returncode == 0:
            prefix += shifted
        if is_readable:
            prefix += ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            folder.mkdir(parents=True)
            os.chown(folder, 65534, 65534)
    if shutil.which("taskset"):
        prefix += ["taskset", "-c", "0"]
    return prefix


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


def check_pdf(content, path, words, absent=()):
    import pypdf
    path.write_bytes(content)
    checked = subprocess.run(["qpdf", "--check", str(path)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    reader = pypdf.PdfReader(io.BytesIO(content))
    texts = {"pypdf": "\n".join(page.extract_text() for page in reader.pages)}
    if shutil.which("pdftotext"):
        read = subprocess.run(["pdftotext", str(path), "-"], capture_output=True, text=True, check=True)
        assert not read.stderr, read.stderr
        texts["Poppler"] = read.stdout
    for library, text in texts.items():
        flat = re.sub(r"[\s\u200b]+", "", text)
        for word in words:
            assert re.sub(r"\s+", "", word) in flat, f"{library} does not find {word!r} in the PDF"
        for word in absent:
            assert re.sub(r"\s+", "", word) not in flat, f"{library} finds {word!r} in the PDF"
    assert reader.metadata.title == "Heat" and "A. Author" in (reader.metadata.author or ""), reader.metadata
    root = reader.trailer["/Root"]
    assert root["/Lang"] == "en" and "/StructTreeRoot" in root and root["/MarkInfo"]["/Marked"], root
    assert len(list(flatten(reader.outline))) >= 3, reader.outline
    outside, inside = set(), 0
    for number, page in enumerate(reader.pages, 1):
        for font in (page["/Resources"].get("/Font") or {}).values():
            embedded(font.get_object())
        assert f"{number} / {len(reader.pages)}" in page.extract_text(), f"page {number} has no number"
        for annotation in page.get("/Annots") or []:
            action = annotation.get_object().get("/A", {})
            if action.get("/S") == "/URI":
                outside.add(action["/URI"])
            else:
                inside += 1
    # The table of contents has three links, and the text refers to the equation, the figure, the table and a heading.
    assert outside == {"https://example.org/"} and inside >= 7, (outside, inside)
    return len(reader.pages)


def check_accessibility(paths):
    """veraPDF on PDFs that say that they follow PDF/UA-1. Returns false without veraPDF."""
    jars = ROOT / "target/verapdf"
    if not jars.is_dir() or shutil.which("java") is None:
        return False
    command = ["java", "-cp", f"{jars}/*", "org.verapdf.apps.GreenfieldCliWrapper", "--format", "xml", "--flavour", "ua1", *map(str, paths)]
    report = ElementTree.fromstring(subprocess.run(command, capture_output=True, text=True).stdout)
    details = report.findall(".//validationReport/details")
    assert len(details) == len(paths) and all(int(one.get("passedRules")) > 100 for one in details), "veraPDF did not read every PDF"
    failed = {(rule.get("clause"), rule.get("testNumber")) for rule in report.iter("rule")}
    assert not failed, failed
    return True


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


def everything(venue, folder, count, checked):
    """Renders everything, checks the files whose digests are not in `checked`, and returns the digests by name."""
    digests = {}

    def note(name, job_type, inputs, formats):
        result = venue.run(job_type, inputs, {"formats": formats})
        assert result["status"] == "SUCCEEDED", (name, result.get("error"))
        for artifact in result["artifacts"]:
            digests[f"{name} {artifact['format']}"] = artifact["digest"]
        # What was checked before has the same bytes now.
        is_known = all(artifact["digest"] in checked for artifact in result["artifacts"])
        found = {} if is_known else venue.files(result)
        checked.update(artifact["digest"] for artifact in result["artifacts"])
        return found

    for index, (kind, source) in enumerate(formulas()):
        if kind == "unsupported" or index >= count:
            continue
        content = {"object": {"type": "equation", "content": {"format": "latex", "value": source}}}
        found = note(f"formula {index}", "object_render", content, ["svg", "png"])
        if found:
            check_svg(found["svg"][1])
            image = check_png(found["png"][1], found["png"][0])
            assert image.getbbox() is not None, f"{source} is empty"
        figure = digests[f"formula {index} png"]
    words = ["Introduction", "A sentence with some words", "Unsearchableword", "print(79)", "3481"]
    for view in ("document", "slide"):
        inputs = {"document": document(figure), "view_mode": view, "include_speaker_notes": True}
        found = note(f"html {view}", "document_export", {**inputs, "export_format": "html"}, ["html"])
        if found:
            check_html(found["html"][1])
        for name, has_notes in (("without", False), ("with", True)):
            inputs["include_speaker_notes"] = has_notes
            found = note(f"{view} {name} notes", "document_export", inputs, ["pdf"])
            if found:
                spoken = ["Speak slowly"]
                path = folder / f"{view}-{name}.pdf"
                pages = check_pdf(found["pdf"][1], path, words + spoken * has_notes, spoken * (not has_notes))
                metadata = found["pdf"][0]["metadata"]
                assert pages == metadata["pages"] and pages > 3 and metadata["standard"] == "PDF/UA-1", metadata
    pdf = digests["slide with notes pdf"]
    for fit in ("contain", "cover"):
        for name, source in (("image", {"digest": figure}), ("pdf", {"digest": pdf}), ("document", {"document": document(figure)})):
            inputs = {**source, "width": 160, "height": 120, "fit": fit}
            found = note(f"thumbnail {name} {fit}", "thumbnail_generate", inputs, ["png"])
            if found:
                assert check_png(found["png"][1], found["png"][0]).size == (160, 120)
    return digests


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--formulas", type=int, default=100)
    arguments = parser.parse_args()
    binary = str(Path(arguments.binary).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        runs, checked = [], set()
        clocked, missing = with_another_clock(binary, folder)
        if missing:
            print(f"another clock: SKIPPED, {missing}")
        other = {"TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8", "LC_ALL": "C", "USER": "somebody", "HOME": str(folder)}
        # Another user can read the copy, and perhaps not the original.
        before = another_host(folder / "three/deeper", clocked is not None)
        for name, program, environment, prefix in (
                ("one", binary, {}, []), ("two", binary, {}, []), ("three/deeper", clocked or binary, other, before)):
            venue = Venue(program, folder / name, environment, prefix)
            try:
                runs.append(everything(venue, folder, arguments.formulas, checked))
                if program == clocked:
                    source = {"object": {"content": {"format": "latex", "value": "t"}}}
                    assert sees_another_time(venue, venue.run("object_render", source, {"formats": ["svg"]}))
            finally:
                venue.stop()
        differing = [name for name in runs[0] if len({run.get(name) for run in runs}) != 1]
        assert not differing, f"not the same bytes: {differing}"
        if not check_accessibility(sorted(folder.glob("*.pdf"))):
            print("veraPDF: SKIPPED, it is not in target/verapdf or there is no Java")
        print(f"{len(runs[0])} files are valid and were the same three times, the third time after {' '.join(before)}")


if __name__ == "__main__":
    sys.exit(main())
