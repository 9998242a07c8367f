package compare

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord bounds a text of a run that is shown.
const maxWord = 80

// clean makes a text of a file fit to be shown: no control characters, valid UTF-8, and
// no longer than a line bears.
func clean(s string) string { return clip(s, maxWord) }

// clip is clean with a bound of its own, in characters.
func clip(s string, most int) string {
	plain := len(s) <= most && utf8.ValidString(s) && strings.IndexFunc(s, hostile) < 0
	if plain {
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if hostile(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// hostile characters move the cursor, or turn the order of the text around them.
func hostile(r rune) bool { return !unicode.IsPrint(r) }

// notMeasured stands in a cell without a value.
const notMeasured = "-"

func number(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return notMeasured
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		return strings.TrimPrefix(s, "-")
	}
	return s
}

// signed is a number with its sign. What rounds to nothing is +0.
func signed(v float64, decimals int) string {
	s := number(v, decimals)
	if s == notMeasured || s[0] == '-' {
		return s
	}
	return "+" + s
}

// percent is a share as +N.N.
func percent(v float64) string { return signed(100*v, 1) }

// plural counts things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
