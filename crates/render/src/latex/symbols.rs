//! The table of commands that are one character.

/// The character of a command.
pub(super) fn character(name: &str) -> Option<char> {
    let at = SYMBOLS.binary_search_by_key(&name, |(known, _)| known).ok()?;
    Some(SYMBOLS[at].1)
}

/// Operators whose name is set upright. True if scripts are set above and below in displays.
pub(super) fn operator(name: &str) -> Option<(&'static str, bool)> {
    const LIMITS: [(&str, &str); 16] = [
        ("argmax", "arg\u{2009}max"),
        ("argmin", "arg\u{2009}min"),
        ("det", "det"),
        ("gcd", "gcd"),
        ("inf", "inf"),
        ("injlim", "inj\u{2009}lim"),
        ("lim", "lim"),
        ("liminf", "lim\u{2009}inf"),
        ("limsup", "lim\u{2009}sup"),
        ("max", "max"),
        ("min", "min"),
        ("Pr", "Pr"),
        ("projlim", "proj\u{2009}lim"),
        ("sup", "sup"),
        ("plim", "plim"),
        ("esssup", "ess\u{2009}sup"),
    ];
    const PLAIN: [&str; 26] = [
        "arccos", "arcsin", "arctan", "arg", "cos", "cosh", "cot", "coth", "csc", "deg", "dim",
        "exp", "hom", "ker", "lg", "ln", "log", "sec", "sin", "sinh", "tan", "tanh", "arcsec",
        "arccot", "arccsc", "sgn",
    ];
    if let Some((_, text)) = LIMITS.iter().find(|(known, _)| *known == name) {
        return Some((text, true));
    }
    PLAIN.iter().find(|known| **known == name).map(|known| (*known, false))
}

/// Accents: the combining character of each command.
pub(super) fn accent(name: &str) -> Option<char> {
    Some(match name {
        "hat" | "widehat" => '\u{302}',
        "tilde" | "widetilde" => '\u{303}',
        "bar" => '\u{304}',
        "vec" | "overrightarrow" => '\u{20d7}',
        "overleftarrow" => '\u{20d6}',
        "overleftrightarrow" => '\u{20e1}',
        "dot" => '\u{307}',
        "ddot" => '\u{308}',
        "dddot" => '\u{20db}',
        "ddddot" => '\u{20dc}',
        "acute" => '\u{301}',
        "grave" => '\u{300}',
        "breve" => '\u{306}',
        "check" | "widecheck" => '\u{30c}',
        "mathring" => '\u{30a}',
        _ => return None,
    })
}

/// The negation of a relation, where Unicode has one.
pub(super) fn negated(c: char) -> Option<char> {
    Some(match c {
        '=' => '≠',
        '∈' => '∉',
        '∋' => '∌',
        '⊂' => '⊄',
        '⊃' => '⊅',
        '⊆' => '⊈',
        '⊇' => '⊉',
        '≡' => '≢',
        '∼' => '≁',
        '≈' => '≉',
        '≅' => '≇',
        '<' => '≮',
        '>' => '≯',
        '≤' => '≰',
        '≥' => '≱',
        '∣' => '∤',
        '|' => '∤',
        '∥' => '∦',
        '∃' => '∄',
        '→' => '↛',
        '←' => '↚',
        '⇒' => '⇏',
        '⊢' => '⊬',
        '⊨' => '⊭',
        '≃' => '≄',
        '≺' => '⊀',
        '≻' => '⊁',
        '↔' => '↮',
        '⇔' => '⇎',
        _ => return None,
    })
}

/// Sorted by name.
#[rustfmt::skip]
const SYMBOLS: &[(&str, char)] = &[
    ("AA", 'Å'), ("AE", 'Æ'), ("Bbbk", '𝕜'), ("Box", '□'), ("Bumpeq", '≎'), ("Cap", '⋒'), ("Coloneqq", '⩴'),
    ("Cup", '⋓'), ("Delta", 'Δ'), ("Diamond", '◇'), ("Doteq", '≑'), ("Downarrow", '⇓'), ("Finv", 'Ⅎ'),
    ("Game", '⅁'), ("Gamma", 'Γ'), ("Im", 'ℑ'), ("Join", '⋈'), ("L", 'Ł'), ("Lambda", 'Λ'), ("Leftarrow", '⇐'),
    ("Leftrightarrow", '⇔'), ("Lleftarrow", '⇚'), ("Longleftarrow", '⟸'), ("Longleftrightarrow", '⟺'),
    ("Longrightarrow", '⟹'), ("Lsh", '↰'), ("O", 'Ø'), ("OE", 'Œ'), ("Omega", 'Ω'), ("P", '¶'), ("Phi", 'Φ'),
    ("Pi", 'Π'), ("Psi", 'Ψ'), ("Re", 'ℜ'), ("Rightarrow", '⇒'), ("Rrightarrow", '⇛'), ("Rsh", '↱'), ("S", '§'),
    ("Sigma", 'Σ'), ("Subset", '⋐'), ("Supset", '⋑'), ("Theta", 'Θ'), ("Uparrow", '⇑'), ("Updownarrow", '⇕'),
    ("Upsilon", 'Υ'), ("Vdash", '⊩'), ("Vert", '‖'), ("Vvdash", '⊪'), ("Xi", 'Ξ'), ("aa", 'å'), ("ae", 'æ'),
    ("aleph", 'ℵ'), ("alpha", 'α'), ("amalg", '⨿'), ("angle", '∠'), ("approx", '≈'), ("approxeq", '≊'),
    ("ast", '∗'), ("asymp", '≍'), ("backprime", '‵'), ("backsim", '∽'), ("backsimeq", '⋍'), ("backslash", '\\'),
    ("barwedge", '⊼'), ("because", '∵'), ("beta", 'β'), ("beth", 'ℶ'), ("between", '≬'), ("bigcap", '⋂'),
    ("bigcirc", '◯'), ("bigcup", '⋃'), ("bigodot", '⨀'), ("bigoplus", '⨁'), ("bigotimes", '⨂'), ("bigsqcap", '⨅'),
    ("bigsqcup", '⨆'), ("bigstar", '★'), ("bigtriangledown", '▽'), ("bigtriangleup", '△'), ("biguplus", '⨄'),
    ("bigvee", '⋁'), ("bigwedge", '⋀'), ("blacklozenge", '⧫'), ("blacksquare", '■'), ("blacktriangle", '▲'),
    ("blacktriangledown", '▼'), ("blacktriangleleft", '◀'), ("blacktriangleright", '▶'), ("bot", '⊥'),
    ("bowtie", '⋈'), ("boxdot", '⊡'), ("boxminus", '⊟'), ("boxplus", '⊞'), ("boxtimes", '⊠'), ("bullet", '∙'),
    ("bumpeq", '≏'), ("cap", '∩'), ("cdot", '⋅'), ("cdots", '⋯'), ("centerdot", '⋅'), ("checkmark", '✓'),
    ("chi", 'χ'), ("circ", '∘'), ("circeq", '≗'), ("circlearrowleft", '↺'), ("circlearrowright", '↻'),
    ("circledR", '®'), ("circledS", 'Ⓢ'), ("circledast", '⊛'), ("circledcirc", '⊚'), ("circleddash", '⊝'),
    ("clubsuit", '♣'), ("coloneq", '≔'), ("coloneqq", '≔'), ("complement", '∁'), ("cong", '≅'), ("coprod", '∐'),
    ("copyright", '©'), ("cup", '∪'), ("curlyeqprec", '⋞'), ("curlyeqsucc", '⋟'), ("curlyvee", '⋎'),
    ("curlywedge", '⋏'), ("curvearrowleft", '↶'), ("curvearrowright", '↷'), ("dag", '†'), ("dagger", '†'),
    ("daleth", 'ℸ'), ("dashleftarrow", '⇠'), ("dashrightarrow", '⇢'), ("dashv", '⊣'), ("ddag", '‡'),
    ("ddagger", '‡'), ("ddots", '⋱'), ("degree", '°'), ("delta", 'δ'), ("diagdown", '╲'), ("diagup", '╱'),
    ("diamond", '⋄'), ("diamondsuit", '♢'), ("digamma", 'ϝ'), ("div", '÷'), ("divideontimes", '⋇'), ("doteq", '≐'),
    ("doteqdot", '≑'), ("dotplus", '∔'), ("dots", '…'), ("dotsb", '⋯'), ("dotsc", '…'), ("dotsi", '⋯'),
    ("dotsm", '⋯'), ("dotso", '…'), ("doublebarwedge", '⩞'), ("doublecap", '⋒'), ("doublecup", '⋓'),
    ("downarrow", '↓'), ("downdownarrows", '⇊'), ("downharpoonleft", '⇃'), ("downharpoonright", '⇂'), ("ell", 'ℓ'),
    ("emptyset", '∅'), ("epsilon", 'ϵ'), ("eqcirc", '≖'), ("eqqcolon", '≕'), ("eqsim", '≂'), ("eqslantgtr", '⪖'),
    ("eqslantless", '⪕'), ("equiv", '≡'), ("eta", 'η'), ("eth", 'ð'), ("exists", '∃'), ("fallingdotseq", '≒'),
    ("flat", '♭'), ("forall", '∀'), ("frown", '⌢'), ("gamma", 'γ'), ("ge", '≥'), ("geq", '≥'), ("geqq", '≧'),
    ("geqslant", '⩾'), ("gets", '←'), ("gg", '≫'), ("ggg", '⋙'), ("gimel", 'ℷ'), ("gneq", '⪈'), ("gneqq", '≩'),
    ("gtrapprox", '⪆'), ("gtrdot", '⋗'), ("gtreqless", '⋛'), ("gtrless", '≷'), ("gtrsim", '≳'), ("hbar", 'ℏ'),
    ("heartsuit", '♡'), ("hookleftarrow", '↩'), ("hookrightarrow", '↪'), ("hslash", 'ℏ'), ("i", 'ı'),
    ("iddots", '⋰'), ("iff", '⟺'), ("iiiint", '⨌'), ("iiint", '∭'), ("iint", '∬'), ("imath", 'ı'),
    ("impliedby", '⟸'), ("implies", '⟹'), ("in", '∈'), ("infty", '∞'), ("int", '∫'), ("intercal", '⊺'),
    ("iota", 'ι'), ("j", 'ȷ'), ("jmath", 'ȷ'), ("kappa", 'κ'), ("l", 'ł'), ("lVert", '‖'), ("lambda", 'λ'),
    ("land", '∧'), ("langle", '⟨'), ("lbrace", '{'), ("lbrack", '['), ("lceil", '⌈'), ("ldots", '…'), ("le", '≤'),
    ("leadsto", '⇝'), ("leftarrow", '←'), ("leftarrowtail", '↢'), ("leftharpoondown", '↽'), ("leftharpoonup", '↼'),
    ("leftleftarrows", '⇇'), ("leftrightarrow", '↔'), ("leftrightarrows", '⇆'), ("leftrightharpoons", '⇋'),
    ("leftrightsquigarrow", '↭'), ("leftthreetimes", '⋋'), ("leq", '≤'), ("leqq", '≦'), ("leqslant", '⩽'),
    ("lessapprox", '⪅'), ("lessdot", '⋖'), ("lesseqgtr", '⋚'), ("lessgtr", '≶'), ("lesssim", '≲'), ("lfloor", '⌊'),
    ("lgroup", '⟮'), ("lhd", '⊲'), ("ll", '≪'), ("llbracket", '⟦'), ("llcorner", '⌞'), ("lll", '⋘'),
    ("lmoustache", '⎰'), ("lneq", '⪇'), ("lneqq", '≨'), ("lnot", '¬'), ("longleftarrow", '⟵'),
    ("longleftrightarrow", '⟷'), ("longmapsto", '⟼'), ("longrightarrow", '⟶'), ("looparrowleft", '↫'),
    ("looparrowright", '↬'), ("lor", '∨'), ("lozenge", '◊'), ("lrcorner", '⌟'), ("ltimes", '⋉'), ("lvert", '|'),
    ("maltese", '✠'), ("mapsto", '↦'), ("measuredangle", '∡'), ("mho", '℧'), ("mid", '∣'), ("models", '⊨'),
    ("mp", '∓'), ("mu", 'μ'), ("multimap", '⊸'), ("nLeftarrow", '⇍'), ("nLeftrightarrow", '⇎'),
    ("nRightarrow", '⇏'), ("nVDash", '⊯'), ("nVdash", '⊮'), ("nabla", '∇'), ("natural", '♮'), ("ncong", '≇'),
    ("ne", '≠'), ("nearrow", '↗'), ("neg", '¬'), ("neq", '≠'), ("nexists", '∄'), ("ngeq", '≱'), ("ngtr", '≯'),
    ("ni", '∋'), ("nleftarrow", '↚'), ("nleftrightarrow", '↮'), ("nleq", '≰'), ("nless", '≮'), ("nmid", '∤'),
    ("notin", '∉'), ("nparallel", '∦'), ("nprec", '⊀'), ("nrightarrow", '↛'), ("nsim", '≁'), ("nsubset", '⊄'),
    ("nsubseteq", '⊈'), ("nsucc", '⊁'), ("nsupset", '⊅'), ("nsupseteq", '⊉'), ("ntriangleleft", '⋪'),
    ("ntrianglelefteq", '⋬'), ("ntriangleright", '⋫'), ("ntrianglerighteq", '⋭'), ("nu", 'ν'), ("nvDash", '⊭'),
    ("nvdash", '⊬'), ("nwarrow", '↖'), ("o", 'ø'), ("odot", '⊙'), ("oe", 'œ'), ("oiiint", '∰'), ("oiint", '∯'),
    ("oint", '∮'), ("omega", 'ω'), ("omicron", 'ο'), ("ominus", '⊖'), ("oplus", '⊕'), ("oslash", '⊘'),
    ("otimes", '⊗'), ("owns", '∋'), ("parallel", '∥'), ("partial", '∂'), ("perp", '⟂'), ("phi", 'ϕ'), ("pi", 'π'),
    ("pitchfork", '⋔'), ("pm", '±'), ("pounds", '£'), ("prec", '≺'), ("precapprox", '⪷'), ("preccurlyeq", '≼'),
    ("preceq", '⪯'), ("precsim", '≾'), ("prime", '′'), ("prod", '∏'), ("propto", '∝'), ("psi", 'ψ'),
    ("rVert", '‖'), ("rangle", '⟩'), ("rbrace", '}'), ("rbrack", ']'), ("rceil", '⌉'), ("restriction", '↾'),
    ("rfloor", '⌋'), ("rgroup", '⟯'), ("rhd", '⊳'), ("rho", 'ρ'), ("rightarrow", '→'), ("rightarrowtail", '↣'),
    ("rightharpoondown", '⇁'), ("rightharpoonup", '⇀'), ("rightleftarrows", '⇄'), ("rightleftharpoons", '⇌'),
    ("rightrightarrows", '⇉'), ("rightsquigarrow", '⇝'), ("rightthreetimes", '⋌'), ("risingdotseq", '≓'),
    ("rmoustache", '⎱'), ("rrbracket", '⟧'), ("rtimes", '⋊'), ("rvert", '|'), ("searrow", '↘'), ("setminus", '∖'),
    ("sharp", '♯'), ("shortmid", '∣'), ("shortparallel", '∥'), ("sigma", 'σ'), ("sim", '∼'), ("simeq", '≃'),
    ("smallsetminus", '∖'), ("smile", '⌣'), ("spadesuit", '♠'), ("sphericalangle", '∢'), ("sqcap", '⊓'),
    ("sqcup", '⊔'), ("sqsubset", '⊏'), ("sqsubseteq", '⊑'), ("sqsupset", '⊐'), ("sqsupseteq", '⊒'),
    ("square", '□'), ("ss", 'ß'), ("star", '⋆'), ("subset", '⊂'), ("subseteq", '⊆'), ("subseteqq", '⫅'),
    ("subsetneq", '⊊'), ("succ", '≻'), ("succapprox", '⪸'), ("succcurlyeq", '≽'), ("succeq", '⪰'),
    ("succsim", '≿'), ("sum", '∑'), ("supset", '⊃'), ("supseteq", '⊇'), ("supseteqq", '⫆'), ("supsetneq", '⊋'),
    ("surd", '√'), ("swarrow", '↙'), ("tau", 'τ'), ("textellipsis", '…'), ("therefore", '∴'), ("theta", 'θ'),
    ("thickapprox", '≈'), ("thicksim", '∼'), ("times", '×'), ("to", '→'), ("top", '⊤'), ("triangle", '△'),
    ("triangledown", '▽'), ("triangleleft", '◁'), ("trianglelefteq", '⊴'), ("triangleq", '≜'),
    ("triangleright", '▷'), ("trianglerighteq", '⊵'), ("twoheadleftarrow", '↞'), ("twoheadrightarrow", '↠'),
    ("ulcorner", '⌜'), ("unlhd", '⊴'), ("unrhd", '⊵'), ("uparrow", '↑'), ("updownarrow", '↕'),
    ("upharpoonleft", '↿'), ("upharpoonright", '↾'), ("uplus", '⊎'), ("upsilon", 'υ'), ("upuparrows", '⇈'),
    ("urcorner", '⌝'), ("vDash", '⊨'), ("varepsilon", 'ε'), ("varkappa", 'ϰ'), ("varnothing", '⌀'),
    ("varphi", 'φ'), ("varpi", 'ϖ'), ("varpropto", '∝'), ("varrho", 'ϱ'), ("varsigma", 'ς'), ("vartheta", 'ϑ'),
    ("vartriangle", '△'), ("vartriangleleft", '⊲'), ("vartriangleright", '⊳'), ("vdash", '⊢'), ("vdots", '⋮'),
    ("vee", '∨'), ("veebar", '⊻'), ("vert", '|'), ("wedge", '∧'), ("wp", '℘'), ("wr", '≀'), ("xi", 'ξ'),
    ("yen", '¥'), ("zeta", 'ζ'),
];
