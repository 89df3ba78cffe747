// Assets: metadata by its ID, and the content behind it.

import { useEffect, useState } from "preact/hooks";
import { ApiError, isAbort, messageOf } from "../api/client";
import { listAssets, readAsset, readContent } from "../api/operations";
import { Id } from "../components/copy";
import { Icon } from "../components/icons";
import { Empty, Result } from "../components/states";
import { Text } from "../components/text";
import { useLoad } from "../lib/load";
import { paths } from "../lib/router";
import { asMap, asText } from "../verify/value";
import type { Value } from "../verify/value";
import { Definition } from "./operation";

const PAGE = 100;

export function AssetsPage() {
  const [scope, setScope] = useState<"own" | "all">("all");
  const [offset, setOffset] = useState(0);
  const page = useLoad(
    (signal) => listAssets(scope, offset, PAGE, signal),
    [scope, offset],
  );
  const choose = (next: "own" | "all"): void => {
    setScope(next);
    setOffset(0);
  };
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Assets</h1>
        <div class="segmented" role="group" aria-label="Which assets to show">
          <button type="button" aria-pressed={scope === "all"} onClick={() => choose("all")}>
            All
          </button>
          <button type="button" aria-pressed={scope === "own"} onClick={() => choose("own")}>
            Registered by you
          </button>
        </div>
      </header>
      <Result loaded={page} what="the assets">
        {({ items, total }) =>
          items.length === 0 ? (
            <Empty title="There are no assets.">
              <p>
                <a href={paths.register}>Register an operation</a>
              </p>
            </Empty>
          ) : (
            <section class="card">
              <ul class="op-list">
                {items.map(({ id, name }) => (
                  <li key={id}>
                    <a href={paths.asset(id)}>
                      {name !== undefined && (
                        <strong>
                          <Text text={name} most={100} />
                        </strong>
                      )}
                      <code class="breakable">{id}</code>
                    </a>
                  </li>
                ))}
              </ul>
              <div class="row wrap spread">
                <span class="muted">
                  {offset + 1} to {offset + items.length} of {total.toLocaleString("en")}
                </span>
                <span class="row">
                  <button
                    type="button"
                    class="button small"
                    disabled={offset === 0}
                    onClick={() => setOffset(Math.max(0, offset - PAGE))}
                  >
                    Previous
                  </button>
                  <button
                    type="button"
                    class="button small"
                    disabled={offset + items.length >= total}
                    onClick={() => setOffset(offset + PAGE)}
                  >
                    Next
                  </button>
                </span>
              </div>
            </section>
          )
        }
      </Result>
    </>
  );
}

export function AssetPage({ id }: { id: string }) {
  const asset = useLoad((signal) => readAsset(id, signal), [id]);
  const metadata = asMap(asset.value);
  const name = asText(metadata?.get("name"));
  return (
    <>
      <header class="page-head">
        <div class="page-title">
          <p class="crumbs">
            <a href={paths.assets}>Assets</a>
          </p>
          <h1 tabIndex={-1}>{name === undefined ? "Asset" : <Text text={name} most={120} />}</h1>
          <div class="row wrap">
            <Id id={id} label="the asset's ID" />
            {metadata?.has("operation") && <a href={paths.operation(id)}>Run it</a>}
          </div>
        </div>
      </header>
      <Result loaded={asset} what="the asset">
        {(value) => (
          <>
            <Definition value={value} asset={id} />
            {metadata?.has("content") && <Content id={id} content={metadata.get("content")!} />}
          </>
        )}
      </Result>
    </>
  );
}

/** Most bytes of a text that are previewed. */
const PREVIEW_BYTES = 64 * 1024;

type Preview =
  | { readonly kind: "image"; readonly url: string }
  | { readonly kind: "text"; readonly text: string; readonly isCut: boolean }
  | { readonly kind: "none" };

/**
 * The content. Images are shown as images, text as text; everything else can be saved. Nothing is
 * ever opened as a page of this origin.
 */
function Content({ id, content }: { id: string; content: Value }) {
  const [blob, setBlob] = useState<Blob | undefined>(undefined);
  const [preview, setPreview] = useState<Preview | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const type = asText(asMap(content)?.get("contentType")) ?? blob?.type ?? "";
  useEffect(() => {
    if (!blob) return;
    let url: string | undefined;
    void previewOf(blob, type).then((made) => {
      if (made.kind === "image") url = made.url;
      setPreview(made);
    });
    return () => {
      if (url !== undefined) URL.revokeObjectURL(url);
    };
  }, [blob]);
  const load = async (): Promise<void> => {
    setIsBusy(true);
    setProblem(undefined);
    try {
      setBlob(await readContent(id));
    } catch (error) {
      if (isAbort(error)) return;
      const isMissing = error instanceof ApiError && error.status === 404;
      setProblem(isMissing ? "The content has not been uploaded." : messageOf(error));
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <section class="card">
      <h2>Content</h2>
      {blob ? (
        <p class="row wrap">
          <span class="muted">
            {blob.size.toLocaleString("en")} bytes, <Text text={type || "unknown type"} most={80} />
          </span>
          <SaveButton blob={blob} id={id} />
        </p>
      ) : (
        <button type="button" class="button" disabled={isBusy} onClick={() => void load()}>
          <Icon name="down" /> {isBusy ? "Loading…" : "Load the content"}
        </button>
      )}
      {problem && (
        <p class="field-problem" role="alert">
          <Text text={problem} />
        </p>
      )}
      {preview?.kind === "image" && (
        <img class="preview" src={preview.url} alt="Preview of the content" />
      )}
      {preview?.kind === "text" && (
        <pre class="excerpt" tabIndex={0} aria-label="Preview of the content">
          <Text text={preview.text} most={PREVIEW_BYTES} />
          {preview.isCut && "\n…"}
        </pre>
      )}
      {preview?.kind === "none" && <p class="muted">This type of content has no preview.</p>}
    </section>
  );
}

async function previewOf(blob: Blob, type: string): Promise<Preview> {
  // An image element runs no scripts, also not those of an SVG.
  if (/^image\/(png|jpeg|gif|webp|avif|svg\+xml)\b/.test(type)) {
    const plain = new Blob([blob], { type: type.split(";")[0]! });
    return { kind: "image", url: URL.createObjectURL(plain) };
  }
  if (/^(text\/|application\/(json|xml|x-ndjson|yaml))/.test(type)) {
    const text = await blob.slice(0, PREVIEW_BYTES).text();
    return { kind: "text", text, isCut: blob.size > PREVIEW_BYTES };
  }
  return { kind: "none" };
}

function SaveButton({ blob, id }: { blob: Blob; id: string }) {
  const save = (): void => {
    // Without a type, no browser displays it instead of saving it.
    const plain = new Blob([blob], { type: "application/octet-stream" });
    const url = URL.createObjectURL(plain);
    const link = document.createElement("a");
    link.href = url;
    link.download = id.replaceAll(/[^a-z0-9-]+/gi, "-");
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return (
    <button type="button" class="button small" onClick={save}>
      Save
    </button>
  );
}
