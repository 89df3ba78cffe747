// Assets: metadata by its ID, and the content behind it.

import { useState } from "preact/hooks";
import { ApiError, isAbort, messageOf } from "../api/client";
import { listAssets, listOperations, readAsset, readContent } from "../api/operations";
import { ContentPreview, saveAs } from "../components/content";
import { Id } from "../components/copy";
import { Icon } from "../components/icons";
import { Empty, FieldProblem, Result } from "../components/states";
import { Text } from "../components/text";
import { useLoad } from "../lib/load";
import { paths } from "../lib/router";
import { asMap, asText } from "@verify/value";
import type { Value } from "@verify/value";
import { Definition } from "./operation";

const PAGE = 100;

/** How many of the caller's own assets are looked up by name; the most that a venue returns. */
const OWN_MAX = 1000;

/** The names of assets, by ID: the list of all has IDs only. */
async function readNames(signal: AbortSignal): Promise<ReadonlyMap<string, string>> {
  const [operations, own] = await Promise.all([listOperations(signal), listAssets("own", 0, OWN_MAX, signal)]);
  const names = new Map(operations.map(({ asset, adapter }) => [asset, adapter]));
  for (const { id, name } of own.items) if (name !== undefined) names.set(id, name);
  return names;
}

export function AssetsPage() {
  const [scope, setScope] = useState<"own" | "all">("all");
  const [offset, setOffset] = useState(0);
  const page = useLoad(
    (signal) => listAssets(scope, offset, PAGE, signal),
    [scope, offset],
  );
  const names = useLoad(readNames, []);
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
                {items.map(({ id, name = names.value?.get(id) }) => (
                  <li key={id}>
                    <a href={paths.asset(id)}>
                      {name !== undefined && (
                        <strong>
                          <Text text={name} most={100} />
                        </strong>
                      )}
                      <code class="breakable muted">{id}</code>
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

/**
 * The content. Images are shown as images, text as text; everything else can be saved. Nothing is
 * ever opened as a page of this origin.
 */
function Content({ id, content }: { id: string; content: Value }) {
  const [blob, setBlob] = useState<Blob | undefined>(undefined);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const type = asText(asMap(content)?.get("contentType")) ?? blob?.type ?? "";
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
          <button type="button" class="button small" onClick={() => saveAs(blob, id)}>
            Save
          </button>
        </p>
      ) : (
        <button type="button" class="button" disabled={isBusy} onClick={() => void load()}>
          <Icon name="down" /> {isBusy ? "Loading…" : "Load the content"}
        </button>
      )}
      <FieldProblem text={problem} />
      {blob && <ContentPreview blob={blob} type={type} name="the content" />}
    </section>
  );
}
