//! Translation: what is accepted, what is refused, and where.

use super::*;

fn error(source: &str) -> (String, u32, u32) {
    let error = to_typst(source).expect_err(source);
    (error.message, error.place.line, error.place.column)
}

#[test]
fn errors_name_the_command_and_its_place() {
    for (source, message, line, column) in [
        (r"\frac{a}{b", r"missing } after \frac", 1, 9),
        (r"\frac{a", r"missing } after \frac", 1, 6),
        (r"\frac{a}", r"an argument of \frac is missing", 1, 1),
        ("a +\n  \\foo{b}", r"unknown command \foo", 2, 3),
        (r"\begin{foo}x\end{foo}", r"unknown environment \begin{foo}", 1, 1),
        (r"\begin{matrix}a\end{cases}", r"\begin{matrix} is ended by \end{cases}", 1, 26),
        (r"\begin{matrix}a & b", r"missing \end{matrix} after \begin{matrix}", 1, 14),
        (r"\left( a", r"\left without \right", 1, 1),
        (r"a \right)", r"\right without \left", 1, 3),
        (r"x^2^3", "a second ^; use braces", 1, 4),
        (r"x^", "nothing follows ^", 1, 2),
        (r"a & b", "& outside of an environment with columns", 1, 3),
        (r"a } b", "} without a {", 1, 3),
        (r"\sqrt[3{x}", r"missing ] after \sqrt", 1, 6),
        (r"a \smash{b}", r"\smash is not supported", 1, 3),
        (r"a \hline b", r"\hline is not at the start of a row", 1, 3),
        (
            r"\begin{array}{r@{=}l}a & b\end{array}",
            r"@{…} in the columns of \begin{array} may only be empty",
            1,
            16,
        ),
        (
            r"\begin{pmatrix*}[x]a\end{pmatrix*}",
            r"[x] after \begin{pmatrix*}; l, c and r are known",
            1,
            1,
        ),
        (
            r"\genfrac{}{}{2pt}{}{a}{b}",
            r"\genfrac with a line of 2pt; it may be 0pt or not given",
            1,
            1,
        ),
    ] {
        assert_eq!(error(source), (message.to_owned(), line, column), "{source}");
    }
}

#[test]
fn commands_that_reach_outside_are_refused_by_name() {
    for name in [
        "input",
        "include",
        "write",
        "openin",
        "read",
        "includegraphics",
        "usepackage",
        "csname",
        "url",
    ] {
        let (message, ..) = error(&format!("x + \\{name}{{/etc/passwd}}"));
        assert!(message.starts_with(&format!("\\{name} is not allowed")), "{message}");
    }
}

#[test]
fn endless_macros_and_deep_nesting_reach_a_limit() {
    let deep = format!("{}x{}", "{".repeat(5000), "}".repeat(5000));
    let fractions = format!("{}x{}", r"\frac{1}{".repeat(500), "}".repeat(500));
    let accents = format!("{}x", r"\hat".repeat(5000));
    for source in [r"\def\a{\a\a}\a", r"\newcommand{\a}{b\a}\a", &deep, &fractions, &accents] {
        let error = to_typst(source).expect_err("no limit");
        assert!(error.is_limit, "{error:?}");
    }
}

#[test]
fn nothing_of_a_formula_is_code() {
    for source in [r"\text{\#read(1) $x$}", "a;b,c:d", r"\#read", "x/y|z!", r"\text{\{\} \$}"] {
        let markup = to_typst(source).expect(source);
        assert!(!markup.replace("\\#", "").replace("\"#", "").contains("#read"), "{markup}");
    }
    assert!(to_typst("#read(\"/etc/passwd\")").is_err());
}

#[test]
fn macros_take_arguments_and_defaults() {
    let same = |one: &str, other: &str| assert_eq!(to_typst(one), to_typst(other), "{one}");
    same(r"\newcommand{\R}{\mathbb{R}} x\in\R", r"x\in\mathbb{R}");
    same(
        r"\newcommand{\p}[2][n]{#2^{#1}} \p{x} \p[3]{y}",
        r"{x}^{n} {y}^{3}".replace("{x}", "x").replace("{y}", "y").as_str(),
    );
    same(r"\def\f#1#2{\frac{#1}{#2}} \f ab", r"\frac{a}{b}");
    same(r"\let\e=\varepsilon \e", r"\varepsilon");
    same(r"\DeclareMathOperator{\rank}{rank} \rank A", r"\operatorname{rank} A");
}

#[test]
fn text_within_text_has_its_own_font() {
    let markup = to_typst(r"\text{an \emph{even} $n$}").expect("text");
    assert!(markup.contains("italic(\"even\")") && markup.contains("inline(n)"), "{markup}");
    let deep = format!("{}x{}", r"\text{".repeat(5000), "}".repeat(5000));
    assert!(to_typst(&deep).expect_err("no limit").is_limit);
}

#[test]
fn lines_at_the_edges_of_an_array_are_drawn() {
    let markup = to_typst(r"\begin{array}{|c|c|} \hline A & B \\ 1 & 0 \\ \hline \end{array}");
    let markup = markup.expect("an array");
    for line in ["vline(x:0", "vline(x:1", "vline(x:2", "hline(y:0", "hline(y:2"] {
        assert!(markup.contains(line), "{line}: {markup}");
    }
}

#[test]
fn cells_of_matrices_are_as_large_as_text() {
    for source in [r"\begin{pmatrix}a\end{pmatrix}", r"\begin{array}{c}a\end{array}"] {
        let markup = to_typst(source).expect(source);
        assert!(markup.contains("inline(a)"), "{markup}");
    }
}

#[test]
fn charges_stand_after_indices_and_mass_numbers_before_elements() {
    let markup = to_typst(r"\ce{SO4^2-}").expect("a substance");
    assert!(markup.contains("b:4)") && markup.contains("attach(\"\",t:2−)"), "{markup}");
    let markup = to_typst(r"\ce{^{227}_{90}Th+}").expect("an isotope");
    assert!(markup.contains("tl:227") && markup.contains("bl:90"), "{markup}");
}

#[test]
fn only_starred_matrices_take_an_alignment() {
    let aligned = to_typst(r"\begin{pmatrix*}[r]1\\-1\end{pmatrix*}").expect("a matrix");
    assert!(aligned.contains("align:#right"), "{aligned}");
    let plain = to_typst(r"\begin{pmatrix}[r] & 1\end{pmatrix}").expect("a matrix");
    assert!(plain.contains("\\[r\\]") && !plain.contains("align:#"), "{plain}");
    let option = to_typst(r"\begin{alignedat}[t]{2}a &= b\end{alignedat}").expect("equations");
    assert!(!option.contains('2') && !option.contains("\\["), "{option}");
}

#[test]
fn phantoms_keep_their_size_in_one_direction() {
    let markup = to_typst(r"\hphantom{ab}\vphantom{\frac12}\mathstrut").expect("phantoms");
    assert_eq!(markup.matches("measure(").count(), 1, "{markup}");
    assert_eq!(markup.matches("width:0pt").count(), 2, "{markup}");
    assert_eq!(markup.matches("hide(").count(), 2, "{markup}");
}
