package gate

import (
	"fmt"
	"io"
	"strings"
)

// GitHub's workflow commands are lines `::notice title=T::MESSAGE`. A runner decodes
// these, and no others: %25, %0D and %0A everywhere, %3A and %2C in properties
// (actions/toolkit, packages/core/src/command.ts).
var (
	escapeData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	escapeProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// WriteGitHub writes an annotation for each outcome: an error for one that failed, a
// warning for one that cannot be told and is allowed, a notice for one that held.
func WriteGitHub(w io.Writer, all []Outcome) error {
	for i := range all {
		o := &all[i]
		level := "notice"
		switch {
		case o.Failed():
			level = "error"
		case o.Verdict != Held:
			level = "warning"
		}
		title := "omnitap compare: " + string(o.Verdict)
		if _, err := fmt.Fprintf(w, "::%s title=%s::%s\n", level, escapeProperty.Replace(title), escapeData.Replace(o.Name()+"  "+o.found())); err != nil {
			return fmt.Errorf("writing annotations: %w", err)
		}
	}
	return nil
}
