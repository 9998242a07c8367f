package message

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var adds = []Add{
	{
		ID: "chatcmpl-a-01234567", HTTPID: "chatcmpl-a", Prompt: []int{151644, 872, 198}, ArrivalNS: 1795979801_000000000,
		FinalStage: 2, Script: []int{5, 70000, 3}, Frames: 200, Seed: 1<<64 - 3, StepNS: 4e6,
	},
	{ID: "x-00000000", HTTPID: "x"},
}

func TestAdd(t *testing.T) {
	for _, want := range adds {
		got, err := DecodeAdd(EncodeAdd(want, 0))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("stage 0 (-want +got):\n%s", d)
		}
		later := Add{ID: want.ID, HTTPID: want.HTTPID, ArrivalNS: want.ArrivalNS, Prompt: make([]int, placeholder), StepNS: want.StepNS}
		if got, err = DecodeAdd(EncodeAdd(want, 1)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(later, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("stage 1 (-want +got):\n%s", d)
		}
	}
}

// The first bytes are those that probes look for (recorded: dc 00 16, then the id).
func TestAddOnTheWire(t *testing.T) {
	b := EncodeAdd(adds[0], 0)
	if want := []byte("\xdc\x00\x16\xb3chatcmpl-a-01234567\x93"); !bytes.HasPrefix(b, want) {
		t.Errorf("an ADD starts %q, want %q", b[:min(len(b), 40)], want)
	}
}

// recorded is what a stock vLLM-Omni 0.26.0 sent.
var recorded = []struct {
	name, b64 string
	make      func() [][]byte
}{
	{
		"statistics of a waiting talker",
		"mACQ3gAQsG51bV9ydW5uaW5nX3JlcXMAsG51bV93YWl0aW5nX3JlcXMBuG51bV9za2lwcGVkX3dhaXRpbmdfcmVxcwCsc3RlcF9j" +
			"b3VudGVyAKxjdXJyZW50X3dhdmUArmt2X2NhY2hlX3VzYWdlywAAAAAAAAAAsWl0ZXJhdGlvbl9kZXRhaWxzwLJwcmVmaXhfY2Fj" +
			"aGVfc3RhdHOHpXJlc2V0wqhyZXF1ZXN0cwCncXVlcmllcwCkaGl0cwCycHJlZW1wdGVkX3JlcXVlc3RzALFwcmVlbXB0ZWRfcXVl" +
			"cmllcwCucHJlZW1wdGVkX2hpdHMAvGNvbm5lY3Rvcl9wcmVmaXhfY2FjaGVfc3RhdHPAuGt2X2NhY2hlX2V2aWN0aW9uX2V2ZW50" +
			"c5Czc3BlY19kZWNvZGluZ19zdGF0c8Cya3ZfY29ubmVjdG9yX3N0YXRzwLV3YWl0aW5nX2xvcmFfYWRhcHRlcnOAtXJ1bm5pbmdf" +
			"bG9yYV9hZGFwdGVyc4CvY3VkYWdyYXBoX3N0YXRzwKpwZXJmX3N0YXRzwMtApCeSncLJE8DAwMA=",
		func() [][]byte { return EncodeOutputs(nil, &Stats{Waiting: 1}, 2579786359870) },
	},
	{
		"thinker's first",
		"mACR3AARuWNoYXRjbXBsLXRyYWNlLTEtOGEyZmRhZGaRzgABFMrAwMDAwJKCpHR5cGUBqXRpbWVzdGFtcMtApCeNdeAr+oKkdHlw" +
			"ZQKpdGltZXN0YW1wy0CkJ4178xWMwMDAhrFudW1fcHJvbXB0X3Rva2VucwuzbnVtX2NvbXB1dGVkX3Rva2VucwuxbnVtX2NhY2hl" +
			"ZF90b2tlbnMAt251bV9sb2NhbF9jYWNoZWRfdG9rZW5zALpudW1fZXh0ZXJuYWxfY2FjaGVkX3Rva2VucwC5bnVtX2NhY2hlX2Ny" +
			"ZWF0aW9uX3Rva2VucwDAAMDCwN4AELBudW1fcnVubmluZ19yZXFzAbBudW1fd2FpdGluZ19yZXFzALhudW1fc2tpcHBlZF93YWl0" +
			"aW5nX3JlcXMArHN0ZXBfY291bnRlcgCsY3VycmVudF93YXZlAK5rdl9jYWNoZV91c2FnZcs/ekGkGkGkALFpdGVyYXRpb25fZGV0" +
			"YWlsc8CycHJlZml4X2NhY2hlX3N0YXRzh6VyZXNldMKocmVxdWVzdHMAp3F1ZXJpZXMApGhpdHMAsnByZWVtcHRlZF9yZXF1ZXN0" +
			"cwCxcHJlZW1wdGVkX3F1ZXJpZXMArnByZWVtcHRlZF9oaXRzALxjb25uZWN0b3JfcHJlZml4X2NhY2hlX3N0YXRzwLhrdl9jYWNo" +
			"ZV9ldmljdGlvbl9ldmVudHOQs3NwZWNfZGVjb2Rpbmdfc3RhdHPAsmt2X2Nvbm5lY3Rvcl9zdGF0c8C1d2FpdGluZ19sb3JhX2Fk" +
			"YXB0ZXJzgLVydW5uaW5nX2xvcmFfYWRhcHRlcnOAr2N1ZGFncmFwaF9zdGF0c8CqcGVyZl9zdGF0c8DLQKQn22K3nwLAwMDA",
		func() [][]byte {
			return EncodeOutputs([]Output{{
				ID: "chatcmpl-trace-1-8a2fdadf", Tokens: []int{70858}, PromptTokens: new(11),
				Events: []Event{{Queued, 2579776289945}, {Scheduled, 2579776336285}},
			}}, &Stats{Running: 1, Usage: 0.0064102564102563875}, 2579928487528)
		},
	},
	{
		"thinker's last",
		"mACR3AARuWNoYXRjbXBsLXRyYWNlLTEtOGEyZmRhZGaRzUHSwMDAAcDAwMDAwMAAwMLAwMtApCkRF3+SS8CRuWNoYXRjbXBsLXRyYWNlLTEtOGEyZmRhZGbAwA==",
		func() [][]byte {
			return EncodeOutputs([]Output{{ID: "chatcmpl-trace-1-8a2fdadf", Tokens: []int{16850}, Finish: new(FinishLength)}}, nil, 2580533382403)
		},
	},
	{
		"talker's last",
		"mACR3AARuWNoYXRjbXBsLXRyYWNlLTEtOGEyZmRhZGaRzQhmwMDAAM0IZsDAwMDAwACBq2NvZGVzLmF1ZGlvk6VpbnQ2NJIBEMeA" +
			"AykEAAAAAAAAdAUAAAAAAAAhAQAAAAAAAAIFAAAAAAAAAgAAAAAAAADaAQAAAAAAAAwAAAAAAAAA+QcAAAAAAABHAAAAAAAAANUH" +
			"AAAAAAAAdgMAAAAAAADRBAAAAAAAAKUDAAAAAAAAOwIAAAAAAACuAgAAAAAAAKgHAAAAAAAAwsDAy0CkN890AD4lwJG5Y2hhdGNt" +
			"cGwtdHJhY2UtMS04YTJmZGFkZsDA",
		func() [][]byte {
			data := []byte{}
			for _, c := range []int64{0x429, 0x574, 0x121, 0x502, 2, 0x1da, 12, 0x7f9, 0x47, 0x7d5, 0x376, 0x4d1, 0x3a5, 0x23b, 0x2ae, 0x7a8} {
				data = binary.LittleEndian.AppendUint64(data, uint64(c))
			}
			return EncodeOutputs([]Output{{
				ID: "chatcmpl-trace-1-8a2fdadf", Tokens: []int{2150}, Finish: new(FinishStop), Stop: new(2150),
				Tensors: []Tensor{{"codes.audio", "int64", []int{1, 16}, data}},
			}}, nil, 2587905181892)
		},
	},
}

func TestOutputsAreTheServers(t *testing.T) {
	for _, tt := range recorded {
		want, err := base64.StdEncoding.DecodeString(tt.b64)
		if err != nil {
			t.Fatal(err)
		}
		got := tt.make()[0]
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, want)
		}
	}
}

func TestOutputs(t *testing.T) {
	want := []Output{
		{ID: "a-00000000", Tokens: []int{1444}, Events: []Event{{Queued, 2579776289945}, {Scheduled, 2579776336285}}},
		{
			ID: "b-00000000", Finish: new(FinishStop), Stop: new(2150),
			Tensors: []Tensor{
				{TensorAudio, "bfloat16", []int{1, 128}, bytes.Repeat([]byte{7}, 256)},
				{"sr", "int32", nil, []byte{0xc0, 0x5d, 0, 0}},
			},
		},
		{ID: "c-00000000", Tensors: []Tensor{{"codes.audio", "int64", []int{1, 16}, bytes.Repeat([]byte{1}, 128)}}},
	}
	frames := EncodeOutputs(want, &Stats{Running: 3}, 1)
	if len(frames) != 2 || len(frames[1]) != 256 {
		t.Fatalf("%d frames, want the message and one tensor", len(frames))
	}
	got, err := DecodeOutputs(frames)
	if err != nil {
		t.Fatal(err)
	}
	near := cmp.Comparer(func(a, b Event) bool { return a.Type == b.Type && a.NS-b.NS < 1000 && b.NS-a.NS < 1000 })
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), near); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got, err = DecodeOutputs(frames[:1]); err == nil {
		t.Errorf("a tensor whose frame is missing: %v", got)
	}
	empty := EncodeOutputs(nil, &Stats{Waiting: 1}, 1)
	if !bytes.HasPrefix(empty[0], []byte{0x98, 0, 0x90}) {
		t.Errorf("statistics alone start % x", empty[0][:8])
	}
	if got, err := DecodeOutputs(empty); err != nil || len(got) != 0 {
		t.Errorf("DecodeOutputs of statistics = %v, %v", got, err)
	}
}

func TestAbort(t *testing.T) {
	got, err := DecodeAbort(EncodeAbort("a", "b"))
	if err != nil || fmt.Sprint(got) != "[a b]" {
		t.Errorf("DecodeAbort = %v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(EncodeAdd(adds[0], 0))
	f.Add(EncodeAdd(adds[1], 2))
	f.Add(EncodeAbort("a", "b"))
	f.Add(EncodeOutputs([]Output{{ID: "a", Tensors: []Tensor{{"sr", "int32", nil, []byte{1}}}}}, nil, 1)[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := DecodeAdd(b); err == nil {
			if _, err := DecodeAdd(EncodeAdd(a, 0)); err != nil {
				t.Error(err)
			}
		}
		if ids, err := DecodeAbort(b); err == nil {
			if _, err := DecodeAbort(EncodeAbort(ids...)); err != nil {
				t.Error(err)
			}
		}
		if outs, err := DecodeOutputs([][]byte{b, {1, 2}}); err == nil {
			if _, err := DecodeOutputs(EncodeOutputs(outs, nil, 1)); err != nil {
				t.Error(err)
			}
		}
	})
}
