// What a part of the job's page shows while it has no records yet.

import { Loading, Problem } from "../../components/states";
import type { Records } from "./records";

export function NoRecords({ error, reload }: Records) {
  return error === undefined ? <Loading what="the records" /> : <Problem error={error} retry={reload} />;
}
