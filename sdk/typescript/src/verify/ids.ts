// Identifiers of jobs and records, in their canonical spelling.

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** A job ID as `0x` and 32 lower-case hex digits, from any accepted spelling. */
export function parseJobId(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const digits = text.replace(/^0[xX]/, "");
  if (UUID.test(digits)) return "0x" + digits.replaceAll("-", "").toLowerCase();
  return /^[0-9a-f]{32}$/i.test(digits) ? "0x" + digits.toLowerCase() : undefined;
}

/** A record ID as `0x` and 64 lower-case hex digits, from any accepted spelling. */
export function parseRecordId(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const digits = text.replace(/^0[xX]/, "");
  return /^[0-9a-f]{64}$/i.test(digits) ? "0x" + digits.toLowerCase() : undefined;
}
