package gate

import (
	"encoding/xml"
	"fmt"
	"io"
)

// The form that CI systems read as JUnit XML: the elements and attributes that Jenkins'
// junit-10.xsd and the readers of GitLab and GitHub have in common.
type (
	junitSuites struct {
		XMLName  xml.Name   `xml:"testsuites"`
		Name     string     `xml:"name,attr"`
		Tests    string     `xml:"tests,attr"`
		Failures string     `xml:"failures,attr"`
		Errors   string     `xml:"errors,attr"`
		Suite    junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    string      `xml:"tests,attr"`
		Failures string      `xml:"failures,attr"`
		Errors   string      `xml:"errors,attr"`
		Skipped  string      `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name      string     `xml:"name,attr"`
		Classname string     `xml:"classname,attr"`
		Skipped   *junitNote `xml:"skipped"`
		Failure   *junitNote `xml:"failure"`
		Out       string     `xml:"system-out,omitempty"`
	}
	junitNote struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// suiteName names the suite, and the class of each case.
const suiteName = "omnitap.compare"

// WriteJUnit writes a test case for each outcome. A gate that cannot be told is a
// failure of the type `cannot tell`, or skipped where it is allowed. There are no times:
// nothing was run.
func WriteJUnit(w io.Writer, all []Outcome) error {
	s := junitSuite{Name: suiteName, Tests: itoa(len(all)), Errors: "0"}
	failures, skipped := 0, 0
	for i := range all {
		o := &all[i]
		c := junitCase{Name: o.Name(), Classname: suiteName}
		note := &junitNote{Type: string(o.Verdict), Message: o.found(), Text: o.Line()}
		switch {
		case o.Failed():
			failures++
			c.Failure = note
		case o.Verdict != Held:
			skipped++
			c.Skipped = note
		default:
			c.Out = o.Line()
		}
		s.Cases = append(s.Cases, c)
	}
	s.Failures, s.Skipped = itoa(failures), itoa(skipped)
	text, err := xml.MarshalIndent(junitSuites{Name: suiteName, Tests: s.Tests, Failures: s.Failures, Errors: s.Errors, Suite: s}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding JUnit XML: %w", err)
	}
	if _, err := io.WriteString(w, xml.Header+string(text)+"\n"); err != nil {
		return fmt.Errorf("writing JUnit XML: %w", err)
	}
	return nil
}
