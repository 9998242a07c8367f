package main

import (
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/omnitap/omnitap/exporter/report"
	"github.com/omnitap/omnitap/proxy/timeline"
)

// TestC25CutUnderLoad: 32 identical requests, four of them cut by 12 % with a clean
// end: each alone looks well, side by side they do not.
func TestC25CutUnderLoad(t *testing.T) {
	const n, whole = 32, 48000
	cut := []int{3, 15, 16, 22}
	up := caseUpstream(t, func(c *net.TCPConn, i int) {
		_, _ = readCaseRequest(c)
		frames := whole + 24*(i%5) // no two takes are alike to the sample
		if slices.Contains(cut, i) {
			frames = whole * 88 / 100
		}
		answer := answerHead("audio/pcm", "X-Sample-Rate: 24000")
		for from := 0; from < frames; from += 4800 {
			answer += httpChunk(sineFrom(from, min(4800, frames-from), 24000))
		}
		caseSend(t, c, answer+zeroChunk)
	})
	rig := startCaseRig(t, up, nil)
	var wg sync.WaitGroup
	for i := range n {
		c := caseDial(t, rig.addr)
		wg.Go(func() {
			caseSend(t, c, post("/v1/audio/speech", caseSpeechBody, fmt.Sprintf("X-Request-Id: r%02d", i), "Connection: close"))
			_, _ = io.Copy(io.Discard, c)
		})
	}
	wg.Wait()
	other := caseDial(t, rig.addr) // another body is no member of the group
	caseSend(t, other, speechRequest(strings.Replace(caseSpeechBody, "input", "Input", 1)))
	_, _ = io.Copy(io.Discard, other)
	recs := rig.stop()
	short := map[string]bool{}
	for _, r := range recs {
		wantTerminal(t, r, timeline.Success, "done") // nothing in the one stream tells
		if *r.AudioS < 1.9 {
			short[r.RequestID] = true
		}
	}
	rep := report.Tables(all(recs))
	if len(rep.Alike) != 1 || rep.Alike[0].N != n || len(rep.Alike[0].Outliers) != len(cut) {
		t.Fatalf("groups = %+v, want one of %d with %d outliers", rep.Alike, n, len(cut))
	}
	for _, o := range rep.Alike[0].Outliers {
		if !short[o.RequestID] || math.Abs(o.Share+0.12) > 0.005 {
			t.Errorf("outlier %+v, want one of the four that are 12 %% short", o)
		}
	}
	var text strings.Builder
	if err := rep.Render(&text); err != nil || !strings.Contains(text.String(), "4 of 32 successes have sound of another length") {
		t.Errorf("the tables do not tell: %v\n%s", err, &text)
	}
}
