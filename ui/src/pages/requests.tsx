// The questions of the caller's agents and jobs to people.

import { useState } from "preact/hooks";
import { RequestList, useRequests } from "../components/requests";
import { Empty, Result } from "../components/states";

export function RequestsPage() {
  const [isAll, setIsAll] = useState(false);
  const requests = useRequests(undefined, isAll);
  return (
    <>
      <header class="page-head">
        <h1 tabIndex={-1}>Requests</h1>
        <label class="check">
          <input
            type="checkbox"
            checked={isAll}
            onChange={(event) => setIsAll(event.currentTarget.checked)}
          />
          Show those that were answered or closed
        </label>
      </header>
      <Result loaded={requests} what="the requests">
        {(listed) => (
          <RequestList
            listed={listed}
            hasAsker
            reload={requests.reload}
            empty={
              <Empty title="Nothing waits for an answer.">
                <p>Questions of your agents and jobs appear here.</p>
              </Empty>
            }
          />
        )}
      </Result>
    </>
  );
}
