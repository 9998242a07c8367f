package twin

import (
	"fmt"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

// Names of the findings.
const (
	// LengthName is the check on the length. Measured is the difference as a share of
	// the twin's length, Threshold the share that is allowed.
	LengthName = "twin_length"
	// SamplesName is the check on the samples of one take. Measured is the largest
	// error, of full scale; where samples are missing, put in or changed the number of
	// them, with Threshold 0; of another take the correlation, with Threshold 0.98.
	// Sample is the stream's frame.
	SamplesName = "twin_samples"
)

// Names lists the findings of this package, sorted.
func Names() []string { return []string{LengthName, SamplesName} }

// NotMeasured returns both findings as not measured, with the reason.
func NotMeasured(reason string) []waveform.Finding {
	var out []waveform.Finding
	for _, name := range Names() {
		out = append(out, waveform.Finding{Name: name, Verdict: waveform.NotMeasured, Reason: reason})
	}
	return out
}

// Check judges a comparison: two findings, in the order of Names.
func Check(cfg Config, c Comparison) []waveform.Finding {
	if c.Twin == 0 || c.CameRate == 0 {
		return NotMeasured(c.Why)
	}
	cfg = cfg.WithDefaults()
	return []waveform.Finding{length(cfg, c), samples(cfg, c)}
}

func length(cfg Config, c Comparison) waveform.Finding {
	allowed := cfg.LengthTolerance
	if cfg.Deterministic {
		allowed = 0
	}
	by := max(c.Share, -c.Share)
	f := waveform.Finding{Name: LengthName, Verdict: waveform.Passed, Measured: &by, Threshold: &allowed}
	if by > allowed {
		f.Verdict, f.Reason = waveform.Failed, lengths(c)
	}
	return f
}

// lengths tells the two lengths and how far they lie apart.
func lengths(c Comparison) string {
	how := "short"
	if c.Share < 0 {
		how = "over-long"
	}
	share := 100 * max(c.Share, -c.Share)
	if c.CameRate != c.TwinRate {
		return fmt.Sprintf("%s by %.3f s (%.1f %%): %.3f s came at %d Hz, the twin has %.3f s at %d Hz", how,
			max(c.Difference, -c.Difference), share, float64(c.Came)/float64(c.CameRate), c.CameRate, float64(c.Twin)/float64(c.TwinRate), c.TwinRate)
	}
	return fmt.Sprintf("%s by %d samples (%.1f %%): %d came, the twin has %d", how, max(c.Twin-c.Came, c.Came-c.Twin), share, c.Came, c.Twin)
}

func samples(cfg Config, c Comparison) waveform.Finding {
	f := waveform.Finding{Name: SamplesName, Verdict: waveform.NotMeasured, Reason: c.Why}
	set := func(verdict waveform.Verdict, measured, threshold float64, reason string) waveform.Finding {
		f.Verdict, f.Measured, f.Threshold, f.Reason = verdict, &measured, &threshold, reason
		return f
	}
	switch {
	case c.Why != "":
		if cfg.Deterministic {
			f.Verdict = waveform.Failed
		}
		return f
	case !c.OneTake && cfg.Deterministic:
		return set(waveform.Failed, c.Correlation, oneTake, fmt.Sprintf("another take, of a server that is deterministic: correlation %.3f", c.Correlation))
	case !c.OneTake:
		return set(waveform.NotMeasured, c.Correlation, oneTake, fmt.Sprintf("another take: correlation %.3f at a lag of %d samples", c.Correlation, c.Lag))
	case c.BreakCount > 0:
		f.Sample = &c.Breaks[0].Frame
		return set(waveform.Failed, float64(c.BreakSamples), 0, broken(c)+c.bound())
	case c.MaxError > cfg.MaxError:
		f.Sample = &c.MaxErrorAt
		return set(waveform.Failed, c.MaxError, cfg.MaxError,
			fmt.Sprintf("samples differ by up to %.6f of full scale at frame %d (RMS %.6f)%s", c.MaxError, c.MaxErrorAt, c.RMSError, c.bound()))
	}
	return set(waveform.Passed, c.MaxError, cfg.MaxError, strings.TrimPrefix(c.bound(), ", "))
}

// bound tells where not all was compared.
func (c *Comparison) bound() string {
	if c.Compared == c.Came {
		return ""
	}
	return fmt.Sprintf(", of the first %d frames", c.Compared)
}

// broken tells the breaks.
func broken(c Comparison) string {
	var parts []string
	for _, b := range c.Breaks {
		parts = append(parts, b.String())
	}
	if n := c.BreakCount - len(c.Breaks); n > 0 {
		parts = append(parts, fmt.Sprintf("%d breaks more", n))
	}
	return strings.Join(parts, "; ")
}

// String tells a break: 555 samples missing at frame 18645.
func (b Break) String() string {
	var what string
	switch {
	case b.Missing > 0:
		what = fmt.Sprintf("%d samples missing", b.Missing)
	case b.Missing < 0:
		what = fmt.Sprintf("%d samples put in", -b.Missing)
	default:
		return fmt.Sprintf("%d samples differ at frame %d", b.Changed, b.Frame)
	}
	if b.Changed > 0 {
		what += fmt.Sprintf(" and %d that differ", b.Changed)
	}
	return fmt.Sprintf("%s at frame %d", what, b.Frame)
}
