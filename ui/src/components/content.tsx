// Content of unknown origin: shown as an image or as text, or offered as a download. Nothing is ever opened
// as a page of this origin.

import { useEffect, useState } from "preact/hooks";
import { Text } from "./text";

/** Most bytes of a text that are previewed. */
const PREVIEW_BYTES = 64 * 1024;

type Preview =
  | { readonly kind: "image"; readonly url: string }
  | { readonly kind: "text"; readonly text: string; readonly isCut: boolean }
  | { readonly kind: "none" };

// An image element runs no scripts, also not those of an SVG.
export const isImage = (type: string): boolean =>
  /^image\/(png|jpeg|gif|webp|avif|svg\+xml)\b/.test(type);

export function ContentPreview({ blob, type, name }: { blob: Blob; type: string; name: string }) {
  const [preview, setPreview] = useState<Preview | undefined>(undefined);
  useEffect(() => {
    let url: string | undefined;
    let isGone = false;
    void previewOf(blob, type).then((made) => {
      if (made.kind === "image") url = made.url;
      if (isGone && url !== undefined) URL.revokeObjectURL(url);
      else setPreview(made);
    });
    return () => {
      isGone = true;
      if (url !== undefined) URL.revokeObjectURL(url);
    };
  }, [blob]);
  switch (preview?.kind) {
    case "image":
      return <img class="preview" src={preview.url} alt={`Preview of ${name}`} />;
    case "text":
      return (
        <pre class="excerpt" tabIndex={0} role="group" aria-label={`Preview of ${name}`}>
          <Text text={preview.text} most={PREVIEW_BYTES} />
          {preview.isCut && "\n…"}
        </pre>
      );
    case "none":
      return <p class="muted">This type of content has no preview.</p>;
    default:
      return null;
  }
}

async function previewOf(blob: Blob, type: string): Promise<Preview> {
  if (isImage(type)) {
    const plain = new Blob([blob], { type: type.split(";")[0]! });
    return { kind: "image", url: URL.createObjectURL(plain) };
  }
  if (/^(text\/|application\/(json|xml|x-ndjson|yaml))/.test(type)) {
    const text = await blob.slice(0, PREVIEW_BYTES).text();
    return { kind: "text", text, isCut: blob.size > PREVIEW_BYTES };
  }
  return { kind: "none" };
}

/** Offers a content as a file. Without a type, no browser displays it instead of saving it. */
export function saveAs(blob: Blob, name: string): void {
  const plain = new Blob([blob], { type: "application/octet-stream" });
  const url = URL.createObjectURL(plain);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replaceAll(/[^a-z0-9._-]+/gi, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
