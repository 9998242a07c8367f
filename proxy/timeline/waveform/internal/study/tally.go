package study

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/omnitap/omnitap/proxy/timeline/waveform"
	"github.com/omnitap/omnitap/proxy/wire/audio"
)

// Alarm counts what a check said of whole streams of one kind, cut in one way.
type Alarm struct {
	Check string `json:"check"`
	Kind  string `json:"kind"`
	Cut   string `json:"cut"`
	// Judged is the streams of which it said something, Failed those that it
	// failed, NotMeasured the others.
	Judged      int `json:"judged"`
	Failed      int `json:"failed"`
	NotMeasured int `json:"not_measured"`
	// Seconds is the sound of the judged streams.
	Seconds float64 `json:"seconds"`
	// Most is the largest value measured, Threshold the one that it is held to.
	Most      float64 `json:"most"`
	Threshold float64 `json:"threshold"`
}

// measured notes a value that was held to a threshold.
func (a *Alarm) measured(value, threshold float64) {
	a.Most, a.Threshold = max(a.Most, value), max(a.Threshold, threshold)
}

// Detection counts what became of one fault of one amount.
type Detection struct {
	Fault  string `json:"fault"`
	Amount int    `json:"amount"`
	Kind   string `json:"kind"`
	Cut    string `json:"cut"`
	// Hop says that the model's hop was known.
	Hop bool `json:"hop"`
	// Heard says that the place was not silent; true where there are many.
	Heard bool `json:"heard"`
	// Streams got the fault, Found is those where a check failed that had not
	// failed on the whole stream, By counts which.
	Streams int            `json:"streams"`
	Found   int            `json:"found"`
	By      map[string]int `json:"by"`
}

type alarmKey struct{ check, kind, cut string }

type detectionKey struct {
	fault      string
	amount     int
	kind, cut  string
	hop, heard bool
}

// tally holds the counts. It is not safe for concurrent use.
type tally struct {
	alarms     map[alarmKey]*Alarm
	detections map[detectionKey]*Detection
}

func newTally() *tally {
	return &tally{map[alarmKey]*Alarm{}, map[detectionKey]*Detection{}}
}

func (t *tally) alarm(kind, cut string, seconds float64, list []waveform.Finding) {
	for _, f := range list {
		a := t.alarmOf(alarmKey{f.Name, kind, cut})
		if f.Verdict == waveform.NotMeasured {
			a.NotMeasured++
			continue
		}
		a.Judged++
		a.Seconds += seconds
		if f.Verdict == waveform.Failed {
			a.Failed++
		}
		if f.Measured != nil && f.Threshold != nil {
			a.measured(*f.Measured, *f.Threshold)
		}
	}
}

func (t *tally) alarmOf(k alarmKey) *Alarm {
	if t.alarms[k] == nil {
		t.alarms[k] = &Alarm{Check: k.check, Kind: k.kind, Cut: k.cut}
	}
	return t.alarms[k]
}

func (t *tally) detectionOf(k detectionKey) *Detection {
	if t.detections[k] == nil {
		t.detections[k] = &Detection{Fault: k.fault, Amount: k.amount, Kind: k.kind, Cut: k.cut, Hop: k.hop, Heard: k.heard, By: map[string]int{}}
	}
	return t.detections[k]
}

// inject cuts a piece in a way that is drawn, puts in every fault, and counts
// what is found with and without the model's hop.
func (t *tally) inject(cfg Config, kind string, piece []int16, rate int, r *rand.Rand) {
	c := cuts()[r.IntN(len(cuts()))]
	s := stream{rate: rate, x: piece, sizes: c.sizes(len(piece), rate, r)}
	hops := []int{0}
	if hop := c.hop(rate); hop > 0 {
		hops = append(hops, hop)
	}
	var before [2]map[string]bool
	for i, hop := range hops {
		before[i] = failures(judge(hop, rate, s.chunks()))
	}
	for _, f := range faults() {
		amounts := cfg.Amounts
		if f.whole {
			amounts = []int{0}
		}
		for _, k := range amounts {
			chunks, at, ok := f.spoil(s, k, r)
			if !ok {
				continue
			}
			key := detectionKey{f.name, k, kind, c.name, false, !f.single || s.heard(at)}
			for i, hop := range hops {
				key.hop = hop > 0
				t.detectionOf(key).count(before[i], failures(judge(hop, rate, chunks)))
			}
		}
	}
}

func (d *Detection) count(before, after map[string]bool) {
	d.Streams++
	found := false
	for name := range after {
		if !before[name] {
			d.By[name]++
			found = true
		}
	}
	if found {
		d.Found++
	}
}

// add adds what another one counted.
func (t *tally) add(o *tally) {
	for k, v := range o.alarms {
		a := t.alarmOf(k)
		a.Judged += v.Judged
		a.Failed += v.Failed
		a.NotMeasured += v.NotMeasured
		a.Seconds += v.Seconds
		a.measured(v.Most, v.Threshold)
	}
	for k, v := range o.detections {
		d := t.detectionOf(k)
		d.Streams += v.Streams
		d.Found += v.Found
		for name, n := range v.By {
			d.By[name] += n
		}
	}
}

func (t *tally) listAlarms() []Alarm {
	var out []Alarm
	for _, a := range t.alarms {
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Cut, b.Cut))
	})
	return out
}

func (t *tally) listDetections() []Detection {
	keys := slices.SortedFunc(maps.Keys(t.detections), func(a, b detectionKey) int {
		return cmp.Or(cmp.Compare(a.fault, b.fault), cmp.Compare(a.amount, b.amount), cmp.Compare(a.kind, b.kind),
			cmp.Compare(a.cut, b.cut), less(a.hop, b.hop), less(a.heard, b.heard))
	})
	var out []Detection
	for _, k := range keys {
		out = append(out, *t.detections[k])
	}
	return out
}

// less orders false ahead of true.
func less(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// judge runs chunks through the checks.
func judge(hop, rate int, chunks [][]int16) []waveform.Finding {
	s := waveform.New(waveform.Config{Hop: hop})
	s.Format(audio.Format{Encoding: audio.S16LE, Rate: rate, Channels: 1}, rate)
	var b []byte
	for _, c := range chunks {
		b = b[:0]
		for _, v := range c {
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		}
		s.Begin()
		s.Samples(b)
		s.End()
	}
	return s.Findings(true)
}

// failures names the checks that failed.
func failures(list []waveform.Finding) map[string]bool {
	m := map[string]bool{}
	for _, f := range list {
		if f.Verdict == waveform.Failed {
			m[f.Name] = true
		}
	}
	return m
}
