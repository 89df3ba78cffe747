// Requests as commands that can be pasted into a shell.

/** A word in single quotes, in which a shell changes nothing. */
export function quote(text: string): string {
  return /^[A-Za-z0-9_./:=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The invocation as a curl command. The token is never part of it. */
export function asCurl(origin: string, operation: string, input: string, needsToken: boolean): string {
  const body = `{"operation":${JSON.stringify(operation)},"input":${input}}`;
  const token = needsToken ? ` \\\n  -H "authorization: Bearer $CATENA_TOKEN"` : "";
  return (
    `curl -s ${quote(`${origin}/api/v1/invoke`)} -H 'content-type: application/json'${token}` +
    ` \\\n  -d ${quote(body)}`
  );
}

/** The invocation as a command of the catena binary. */
export function asCli(origin: string, operation: string, input: string): string {
  return `catena run --venue ${quote(origin)} ${quote(operation)} -i ${quote(input)}`;
}
