package twin

import (
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
)

func TestCheck(t *testing.T) {
	x := speech(seeded(11), 4*testRate, testRate)
	other := speech(seeded(12), 4*testRate, testRate)
	click := slices.Clone(x)
	click[50000] ^= 1 << 11
	twin := s16(x, testRate)
	slow := s16(x[:2*testRate], testRate/2)
	for _, v := range []struct {
		name            string
		cfg             Config
		came            Take
		length, samples waveform.Verdict
		reasons         []string
	}{
		{"the same", Config{}, twin, waveform.Passed, waveform.Passed, nil},
		{"the same, deterministic", Config{Deterministic: true}, twin, waveform.Passed, waveform.Passed, nil},
		{"555 lost", Config{}, s16(slices.Concat(x[:18645], x[19200:]), testRate), waveform.Passed, waveform.Failed, []string{"555 samples missing at frame 18645"}},
		{"12 % short", Config{}, s16(x[:84480], testRate), waveform.Failed, waveform.Failed, []string{"short by 11520 samples (12.0 %): 84480 came, the twin has 96000", "11520 samples missing at frame 84480"}},
		{"over-long", Config{}, s16(append(slices.Clone(x), x[:9600]...), testRate), waveform.Failed, waveform.Failed, []string{"over-long by 9600 samples (10.0 %): 105600 came", "9600 samples put in at frame 96000"}},
		{"one short, deterministic", Config{Deterministic: true}, s16(x[:95999], testRate), waveform.Failed, waveform.Failed, []string{"short by 1 samples", "1 samples missing"}},
		{"click", Config{}, s16(click, testRate), waveform.Passed, waveform.Failed, []string{"samples differ by up to 0.0625", "at frame 50000"}},
		{"click that is let through", Config{MaxError: 0.1}, s16(click, testRate), waveform.Passed, waveform.Passed, nil},
		{"another take", Config{}, s16(other, testRate), waveform.Passed, waveform.NotMeasured, []string{"another take: correlation 0."}},
		{"another take, deterministic", Config{Deterministic: true}, s16(other, testRate), waveform.Passed, waveform.Failed, []string{"of a server that is deterministic"}},
		{"another rate", Config{}, slow, waveform.Passed, waveform.NotMeasured, []string{"one take is at 12000 Hz, the other at 24000 Hz"}},
		{"another rate and short", Config{}, s16(x[:testRate], testRate/2), waveform.Failed, waveform.NotMeasured, []string{"short by 2.000 s (50.0 %): 2.000 s came at 12000 Hz, the twin has 4.000 s at 24000 Hz"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			fs := Check(v.cfg, Compare(v.came, twin))
			if fs[0].Name != LengthName || fs[1].Name != SamplesName {
				t.Fatalf("names %s, %s", fs[0].Name, fs[1].Name)
			}
			if fs[0].Verdict != v.length || fs[1].Verdict != v.samples {
				t.Errorf("%s (%s), %s (%s)", fs[0].Verdict, fs[0].Reason, fs[1].Verdict, fs[1].Reason)
			}
			for _, r := range v.reasons {
				if !strings.Contains(fs[0].Reason+"\n"+fs[1].Reason, r) {
					t.Errorf("reasons %q and %q, want %q", fs[0].Reason, fs[1].Reason, r)
				}
			}
			if fs[1].Verdict == waveform.NotMeasured && fs[1].Reason == "" {
				t.Error("no reason")
			}
		})
	}
	for _, f := range Check(Config{}, Compare(twin, Take{Format: twin.Format})) {
		if f.Verdict != waveform.NotMeasured || f.Reason != "the twin has no samples" {
			t.Errorf("%+v", f)
		}
	}
}

func TestConfig(t *testing.T) {
	var c Config
	if err := yaml.Unmarshal([]byte("{sample: 0.01, max_concurrent: 2, max_per_minute: 3, timeout: 30s, max_bytes: 5, length_tolerance: 0.1, deterministic: true, max_error: 0.2}"), &c); err != nil {
		t.Fatal(err)
	}
	if want := (Config{0.01, 2, 3, 30e9, 5, 0.1, true, 0.2}); c != want || c.WithDefaults() != want || c.Validate() != nil {
		t.Errorf("%+v, %v", c, c.Validate())
	}
	bad := Config{2, -1, -1, -1, -1, -1, false, -1}
	if err := bad.Validate(); err == nil || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("complaints: %v", err)
	}
}
