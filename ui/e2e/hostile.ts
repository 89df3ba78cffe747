// Texts that try to become more than text.

export const HOSTILE: readonly string[] = [
  "<script>window.pwned=1</script>",
  "<img src=x onerror=window.pwned=1>",
  "<svg onload=window.pwned=1>",
  "<svg><script>window.pwned=1</script></svg>",
  '"><script>window.pwned=1</script>',
  "'><img src=x onerror=window.pwned=1>",
  "</title><script>window.pwned=1</script>",
  "</textarea><script>window.pwned=1</script>",
  "</style><script>window.pwned=1</script>",
  "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
  "<iframe src=javascript:parent.pwned=1></iframe>",
  "<a href=javascript:window.pwned=1>x</a>",
  "<a href='https://evil.example/'>x</a>",
  "<body onload=window.pwned=1>",
  "<details open ontoggle=window.pwned=1>",
  "<input autofocus onfocus=window.pwned=1>",
  "<video><source onerror=window.pwned=1></video>",
  "<math><mtext></mtext><script>window.pwned=1</script></math>",
  "<object data=javascript:window.pwned=1></object>",
  "<embed src=//evil.example/x>",
  "<link rel=stylesheet href=//evil.example/x.css>",
  "<style>@import '//evil.example/x.css';</style>",
  "<base href=//evil.example/>",
  "<meta http-equiv=refresh content='0;url=//evil.example/'>",
  "<form action=//evil.example/><button>x</button></form>",
  "javascript:window.pwned=1",
  "data:text/html,<script>window.pwned=1</script>",
  "https://evil.example/?q=\"onmouseover=window.pwned=1",
  "{{constructor.constructor('window.pwned=1')()}}",
  "${window.pwned=1}",
  "`${window.pwned=1}`",
  "__proto__",
  "constructor",
  "\u202eevil\u202c \u200bzero\u200dwidth\ufeff",
  "\u2066isolate\u2069 \u061c\u115f\u3164",
  "a\u0000b\u0001c\u001b[31m",
  "\ud83d\ude00\ud83c\udff4\udb40\udc67 \u0301\u0301\u0301\u0301\u0301",
  "[x](javascript:window.pwned=1) ![x](//evil.example/x.png)",
  "../../../etc/passwd?a=1&b=2#c",
  "x".repeat(5000),
];

/** The longest text to search for that a venue accepts, in bytes. */
const TEXT_BYTES_MAX = 256;

/** Strings that may do harm only if nothing else is in the text: targets of links, and names of members. */
const isAlone = (text: string): boolean => /^(\w+:|\.\.\/|__proto__$|constructor$)/.test(text);

/**
 * Texts for addresses that together contain every hostile string. Each has as many strings as a venue accepts in
 * one text, because a page is opened for each text and each kind of address.
 */
export const ADDRESS_TEXTS: readonly string[] = (() => {
  const texts: string[] = [];
  for (const text of HOSTILE.filter((text) => !isAlone(text)).map((text) => text.slice(0, 500))) {
    const together = `${texts.at(-1)} ${text}`;
    if (texts.length > 0 && Buffer.byteLength(together) <= TEXT_BYTES_MAX) texts.splice(-1, 1, together);
    else texts.push(text);
  }
  return [...texts, ...HOSTILE.filter(isAlone)];
})();
