package verify_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/omnitap/omnitap/exporter/rundir"
	"github.com/omnitap/omnitap/exporter/verify"
)

// tampering is one way to change a run, and what must be said of it.
type tampering struct {
	file   string
	change func(text string) string
	kind   verify.Kind
	// in is the file that the finding names, file where it is empty; text must stand in
	// the finding's line.
	in, text string
}

// once replaces the first match of an expression.
func once(expr, with string) func(string) string {
	re := regexp.MustCompile(expr)
	return func(s string) string {
		at := re.FindStringIndex(s)
		if at == nil {
			return s
		}
		return s[:at[0]] + re.ReplaceAllString(s[at[0]:at[1]], with) + s[at[1]:]
	}
}

// bump adds one to the number behind the n-th occurrence of a text.
func bump(key string, n int) func(string) string {
	return func(s string) string {
		at := 0
		for range n {
			i := strings.Index(s[at:], key)
			if i < 0 {
				return s
			}
			at += i + len(key)
		}
		end := at
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		v, err := strconv.ParseInt(s[at:end], 10, 64)
		if err != nil {
			return s
		}
		return s[:at] + strconv.FormatInt(v+1, 10) + s[end:]
	}
}

// line changes the n-th line that holds a text.
func line(holds string, n int, change func(line string) string) func(string) string {
	return func(s string) string {
		lines, left := strings.SplitAfter(s, "\n"), n
		for i, l := range lines {
			if !strings.Contains(l, holds) {
				continue
			}
			if left--; left == 0 {
				lines[i] = change(l)
				break
			}
		}
		return strings.Join(lines, "")
	}
}

func gone(string) string { return "" }

// swap exchanges the n-th line that holds a text with the next that does.
func swap(holds string, n int) func(string) string {
	return func(s string) string {
		lines := strings.SplitAfter(s, "\n")
		var at []int
		for i, l := range lines {
			if strings.Contains(l, holds) {
				at = append(at, i)
			}
		}
		lines[at[n-1]], lines[at[n]] = lines[at[n]], lines[at[n-1]]
		return strings.Join(lines, "")
	}
}

const (
	requests = rundir.RequestsFile
	events   = rundir.EventsFile
)

var tamperings = map[string]tampering{
	// metrics of the record
	"ttft":              {requests, once(`"ttft_ms":(\d)`, `"ttft_ms":9$1`), verify.KindValue, "", "ttft_ms"},
	"ttfa":              {requests, once(`"ttfa_ms":(\d+)\.`, `"ttfa_ms":1$1.`), verify.KindValue, "", "ttfa_ms"},
	"ttfaudible":        {requests, once(`"ttfaudible_ms":\d`, `"ttfaudible_ms":7`), verify.KindValue, "", "ttfaudible_ms"},
	"jct":               {requests, once(`"jct_ms":\d+\.`, `"jct_ms":1.`), verify.KindValue, "", "jct_ms: 1."},
	"jct, null":         {requests, once(`"jct_ms":[\d.]+`, `"jct_ms":null`), verify.KindValue, "", "jct_ms: null in the record"},
	"rtf":               {requests, once(`"rtf":[\d.]+`, `"rtf":0.001`), verify.KindValue, "", "rtf: 0.001"},
	"xrt":               {requests, once(`"xrt":[\d.]+`, `"xrt":100`), verify.KindValue, "", "xrt: 100"},
	"tpot":              {requests, once(`"tpot_ms":[\d.]+`, `"tpot_ms":1`), verify.KindValue, "", "tpot_ms: 1"},
	"audio_s":           {requests, once(`"audio_s":[\d.]+`, `"audio_s":99`), verify.KindValue, "", "audio_s: 99"},
	"samples":           {requests, bump(`"samples":`, 1), verify.KindValue, "", "audio.samples"},
	"bytes":             {requests, bump(`"chunk_unit":"event","bytes":`, 1), verify.KindValue, "", "audio.bytes"},
	"chunks":            {requests, bump(`"chunks":`, 1), verify.KindValue, "", "audio.chunks"},
	"text units":        {requests, bump(`"text_units":`, 1), verify.KindValue, "", "text_units"},
	"text bytes":        {requests, bump(`"text_bytes":`, 1), verify.KindValue, "", "text_bytes"},
	"a point":           {requests, bump(`"t_audible":`, 1), verify.KindValue, "", "points.t_audible"},
	"an offset":         {requests, bump(`"offsets":{"t_in":1,"t_body":`, 1), verify.KindValue, "", "offsets.t_body"},
	"gap p99":           {requests, once(`"p99":[\d.]+,"max":([\d.]+),"cv"`, `"p99":$1,"max":$1,"cv"`), verify.KindValue, "", "audio_gap_ms.p99"},
	"gap cv":            {requests, once(`"cv":[\d.]+`, `"cv":0.25`), verify.KindValue, "", "audio_gap_ms.cv"},
	"gap n":             {requests, bump(`,"n":`, 1), verify.KindValue, "", "audio_gap_ms.n"},
	"underruns":         {requests, once(`"underruns":0`, `"underruns":3`), verify.KindValue, "", "playback.underruns"},
	"stall":             {requests, once(`"stall_ms":0`, `"stall_ms":3`), verify.KindValue, "", "playback.stall_ms"},
	"min prebuffer":     {requests, once(`"min_prebuffer_ms":0`, `"min_prebuffer_ms":60`), verify.KindConservation, "", "playback.min_prebuffer_ms"},
	"continuity":        {requests, once(`"50":true`, `"50":false`), verify.KindValue, "", "playback.continuity"},
	"first chunk":       {requests, once(`"first_chunk_ms":[\d.]+`, `"first_chunk_ms":20`), verify.KindValue, "", "playback.first_chunk_ms"},
	"vLLM's continuity": {requests, once(`"max_late_ms":-?[\d.]+`, `"max_late_ms":-1`), verify.KindValue, "", "max_late_ms"},
	"incremental":       {requests, once(`"incremental":true`, `"incremental":false`), verify.KindValue, "", "incremental"},
	"own delay":         {requests, once(`"own_delay_us":\{"p50":[\d.]+`, `"own_delay_us":{"p50":1`), verify.KindValue, "", "own_delay_us.p50"},
	"state":             {requests, once(`"state":"transport-error"`, `"state":"success"`), verify.KindValue, "", "terminal.state"},
	"verdict":           {requests, once(`"verdict":"passed"`, `"verdict":"not_measured"`), verify.KindValue, "", "quality.verdict"},
	"failed check":      {requests, once(`"failed":\[\]`, `"failed":["silence"]`), verify.KindValue, "", "quality.failed"},
	"bytes up":          {requests, bump(`"bytes_up":`, 1), verify.KindValue, "", "bytes_up"},
	"wall clock":        {requests, bump(`"t_in_wall_ns":`, 1), verify.KindValue, "", "t_in_wall_ns"},
	"a flag":            {requests, once(`"flags":\[\],"analysis":"full","analysis_reason":null,"own_delay_us":\{`, `"flags":["burst_delivery"],"analysis":"full","analysis_reason":null,"own_delay_us":{`), verify.KindValue, "", "flags.burst_delivery"},
	"stage wait":        {requests, once(`"wait_ms":[\d.]+,"service_ms"`, `"wait_ms":0.5,"service_ms"`), verify.KindValue, "", "stages[].wait_ms"},
	"stage service":     {requests, once(`"service_ms":[\d.]+`, `"service_ms":99999`), verify.KindConservation, "", "stages[].service_ms"},
	"stage fan-out":     {requests, once(`"fan_out":1`, `"fan_out":2`), verify.KindValue, "", "stages[].fan_out"},
	"stage ready":       {requests, bump(`"ready_ns":`, 1), verify.KindValue, "", "stages[].ready_ns"},
	"stage below 0":     {requests, once(`"cpu_ms":`, `"cpu_ms":-`), verify.KindConservation, "", "cpu_ms"},
	"transfer start":    {requests, bump(`"start_ns":`, 4), verify.KindValue, "", "transfers[].start_ns"},
	"transfer end":      {requests, bump(`"end_ns":`, 1), verify.KindValue, "", "transfers[].end_ns"},
	"transfer backward": {requests, once(`"end_ns":\d+,"match"`, `"end_ns":5,"match"`), verify.KindConservation, "", "transfers[].end_ns"},
	"transfer bytes":    {requests, bump(`"transport":"shm","bytes":`, 1), verify.KindValue, "", "transfers[].bytes"},
	"transfer write":    {requests, once(`"write_ms":[\d.]+`, `"write_ms":0.5`), verify.KindValue, "", "transfers[].write_ms"},
	"transfer read":     {requests, once(`"read_ms":[\d.]+`, `"read_ms":0.5`), verify.KindValue, "", "transfers[].read_ms"},
	"critical path":     {requests, once(`"gap":"relay","ms":[\d.]+`, `"gap":"relay","ms":0.5`), verify.KindValue, "", "critical_path"},
	"a gap taken out":   {requests, once(`\{"gap":"relay","ms":[\d.]+\},`, ``), verify.KindValue, "", "critical_path"},
	"rtf audible":       {requests, once(`"rtf_audible":[\d.]+`, `"rtf_audible":0.5`), verify.KindValue, "", "rtf_audible"},
	"audible_s":         {requests, once(`"audible_s":[\d.]+`, `"audible_s":0.25`), verify.KindValue, "", "audible_s: 0.25"},
	"empty events":      {requests, bump(`"empty_events":`, 1), verify.KindValue, "", "audio.empty_events"},
	"client wait":       {requests, once(`"client_wait_ms":0`, `"client_wait_ms":3`), verify.KindValue, "", "client_wait_ms"},
	"reasoning":         {requests, once(`"reasoning":null`, `"reasoning":{"first_ms":1.5,"units":1,"chars":4}`), verify.KindValue, "", "reasoning"},
	"alternative t_in":  {requests, once(`("t_in_alternatives":\{"[\w.]+":)\d+`, `${1}5`), verify.KindValue, "", "t_in_alternatives: 5"},
	"one more of them":  {requests, once(`"t_in_alternatives":\{`, `"t_in_alternatives":{"dawn":5,`), verify.KindValue, "", "t_in_alternatives: 5 in the record, null"},
	"one less of them":  {requests, once(`"t_in_alternatives":\{"[\w.]+":\d+\}`, `"t_in_alternatives":null`), verify.KindValue, "", "t_in_alternatives: null"},
	"t_in's byte":       {requests, once(`"t_in_server_offset":\d+`, `"t_in_server_offset":5`), verify.KindValue, "", "t_in_server_offset"},
	"input bytes":       {requests, bump(`"input":{"bytes":`, 1), verify.KindValue, "", "input.bytes"},
	"input messages":    {requests, bump(`"messages":`, 1), verify.KindValue, "", "input.messages"},
	"input seconds":     {requests, once(`("messages":\d+,"audio_s":)[\d.]+`, `${1}9`), verify.KindValue, "", "input.audio_s: 9"},
	"input span":        {requests, once(`"span_ms":[\d.]+`, `"span_ms":9`), verify.KindValue, "", "input.span_ms: 9"},
	"input pace":        {requests, once(`"pace":[\d.]+`, `"pace":1.25`), verify.KindValue, "", "input.pace: 1.25"},
	"input rate":        {requests, once(`("pace":[\d.]+,"sample_rate":)\d+`, `${1}8000`), verify.KindValue, "", "input.sample_rate: 8000"},
	"input, null":       {requests, once(`"input":\{[^}]*\}`, `"input":null`), verify.KindValue, "", "input: false"},
	"a turn's bytes":    {requests, line(`"turn":1,`, 1, bump(`"bytes_up":`, 1)), verify.KindValue, "", "bytes_up"},
	"slow client":       {requests, once(`"flags":\[\]`, `"flags":["client_slow"]`), verify.KindValue, "", "flags.client_slow"},
	"relay's lag":       {requests, once(`"flags":\[\]`, `"flags":["relay_lag"]`), verify.KindValue, "", "flags.relay_lag"},
	"a deadline":        {requests, once(`"flags":\[\]`, `"flags":["deadline_passed"]`), verify.KindValue, "", "flags.deadline_passed"},
	"no text":           {requests, line(`"flow":"chat"`, 1, once(`"flags":\[\]`, `"flags":["no_text"]`)), verify.KindValue, "", "flags.no_text"},
	"stage starved":     {requests, once(`"starved_ms":[\d.]+`, `"starved_ms":0.5`), verify.KindValue, "", "stages[].starved_ms"},
	"stage CPU":         {requests, once(`"cpu_ms":[\d.]+`, `"cpu_ms":0.125`), verify.KindValue, "", "stages[].cpu_ms: 0.125"},
	"stage CPU bound":   {requests, once(`"cpu_bound_ms":[\d.]+`, `"cpu_bound_ms":0.125`), verify.KindValue, "", "stages[].cpu_bound_ms: 0.125"},
	"stage run queue":   {requests, once(`"runq_ms":[\d.]+`, `"runq_ms":0.125`), verify.KindValue, "", "stages[].runq_ms: 0.125"},
	"stage blocked":     {requests, once(`"blocked_ms":[\d.]+`, `"blocked_ms":0.125`), verify.KindValue, "", "stages[].blocked_ms: 0.125"},
	"stage steps":       {requests, bump(`"steps":`, 1), verify.KindValue, "", "stages[].steps"},
	"stage batch":       {requests, once(`"batch":\{"mean":1`, `"batch":{"mean":2`), verify.KindValue, "", "stages[].batch.mean"},
	"largest batch":     {requests, once(`("mean":1,"max":)1`, `${1}2`), verify.KindValue, "", "stages[].batch.max"},
	"stage batch, null": {requests, once(`"batch":\{[^}]*\}`, `"batch":null`), verify.KindValue, "", "stages[].batch: null"},
	"stage queue, null": {requests, once(`"queue_ms":[\d.]+`, `"queue_ms":null`), verify.KindValue, "", "stages[].queue_ms: null"},
	"stage GPU":         {requests, once(`"gpu":null`, `"gpu":{"launches":3}`), verify.KindValue, "", "stages[].gpu"},
	"transfer wait":     {requests, once(`("read_ms":[\d.]+,"wait_ms":)[\d.]+`, `${1}0.5`), verify.KindValue, "", "transfers[].wait_ms: 0.5"},
	"transfer in way":   {requests, once(`"in_flight_ms":[\d.]+`, `"in_flight_ms":0.5`), verify.KindValue, "", "transfers[].in_flight_ms: 0.5"},
	"transfer misses":   {requests, bump(`"misses":`, 1), verify.KindValue, "", "transfers[].misses"},
	"transfer empty":    {requests, bump(`"empty_polls":`, 1), verify.KindValue, "", "transfers[].empty_polls"},
	"transfer from":     {requests, once(`"from":"thinker"`, `"from":"thinner"`), verify.KindValue, "", "transfers[].from"},
	"transfer unread":   {requests, once(`("empty_polls":\d+,"path":"[^"]*")\}`, `${1},"unread":true}`), verify.KindValue, "", "transfers[].unread"},
	"a transfer less":   {requests, once(`\{"from":"talker","to":"code2wav"[^{}]*\}\],"critical`, `{"from":"","to":"","transport":"","bytes":null,"start_ns":0,"end_ns":null,"match":"","confidence":0,"chunk":null,"write_ms":null,"in_flight_ms":null,"read_ms":null,"wait_ms":null,"misses":null,"empty_polls":null,"path":null}],"critical`), verify.KindValue, "", "transfers[].from"},
	"quiesce":           {requests, once(`"cancel_quiesce_ms":null`, `"cancel_quiesce_ms":5`), verify.KindValue, "", "cancel_quiesce_ms: 5"},
	"a gap's border":    {requests, once(`"gap":"thinker.decode","ms":([\d.]+)\},\{"gap":"thinker->talker.write","ms":[\d.]+`, `"gap":"thinker.decode","ms":0.5},{"gap":"thinker->talker.write","ms":$1`), verify.KindValue, "", "critical_path"},
	"cut off":           {requests, bump(`"chunks_after":`, 1), verify.KindValue, "", "cancel.chunks_after"},
	"run id":            {requests, once(`"run_id":"2026`, `"run_id":"2027`), verify.KindValue, "", "run_id"},

	// lines of requests.jsonl
	"a record gone":        {requests, line(`"flow":"chat"`, 1, gone), verify.KindOrphan, events, "no record of it"},
	"a record twice":       {requests, line(`"flow":"chat"`, 1, func(l string) string { return l + l }), verify.KindConservation, "", "not unique"},
	"a record cut":         {requests, line(`"flow":"chat"`, 2, func(l string) string { return l[:200] + "\n" }), verify.KindLine, "", "no JSON"},
	"the last line cut":    {requests, func(s string) string { return s[:len(s)-1] }, verify.KindLine, "", "the line is cut"},
	"a record of schema 2": {requests, once(`"schema":1`, `"schema":2`), verify.KindVersion, "", "schema 2, this program reads 1"},
	"mixed schemas":        {requests, once(`"schema":1`, `"schema":2`), verify.KindVersion, "-", "lines of different schema versions: 1 in "},
	"another type":         {requests, once(`"bytes_down":(\d+)`, `"bytes_down":"$1"`), verify.KindSchema, "", "bytes_down: string, want integer"},
	"a member of a record": {requests, once(`"declared_tokens":\w+,`, ``), verify.KindSchema, "", "declared_tokens is missing, here and in 0 places more"},
	"another reading":      {requests, once(`"ttft_ms":([\d.]+)`, `"ttft_ms":1,"TTFT_ms":$1`), verify.KindSchema, "", "TTFT_ms is ttft_ms but for its case"},
	"zero requests":        {requests, gone, verify.KindLost, "", "no requests"},
	"compressed":           {requests, func(s string) string { return "\x1f\x8b" + s }, verify.KindFile, "", "compressed (gzip)"},
	"binary":               {requests, func(s string) string { return "PAR1\x00\n" + s }, verify.KindLine, "", "no JSON"},
	"a turn's session":     {requests, once(`"session_id":"ot\w+"`, `"session_id":"other"`), verify.KindOrphan, "", `session other has turns and no line`},

	// events
	"a text chunk gone":    {events, line(`"event":"text_chunk"`, 3, gone), verify.KindOrder, "", "text_chunk 2 is missing"},
	"an audio chunk gone":  {events, line(`"event":"output_chunk"`, 2, gone), verify.KindOrder, "", "output_chunk 1 is missing"},
	"the last chunk gone":  {events, line(`"chunk_id":3,"event":"output_chunk"`, 1, gone), verify.KindValue, requests, "audio.samples"},
	"a write gone":         {events, line(`"event":"client_write"`, 1, gone), verify.KindValue, requests, "own_delay_us.n"},
	"a point gone":         {events, line(`"event":"first_audible"`, 1, gone), verify.KindValue, requests, "points.t_audible"},
	"first audio gone":     {events, line(`"event":"first_audio"`, 1, gone), verify.KindOrder, requests, "its first_audio event is not there"},
	"the end gone":         {events, line(`"event":"terminal"`, 1, gone), verify.KindOrder, requests, "its terminal event is not there"},
	"a stage's event gone": {events, line(`"event":"compute_end"`, 1, gone), verify.KindValue, requests, "stages[].finish_ns"},
	"a transfer gone":      {events, line(`"event":"received"`, 1, gone), verify.KindValue, requests, "transfers[].end_ns"},
	"all of one gone":      {events, everything, verify.KindOrphan, requests, "no event of it"},
	"chunks swapped":       {events, swap(`"event":"output_chunk"`, 1), verify.KindOrder, "", "lines were moved"},
	"text swapped":         {events, swap(`"event":"text_chunk"`, 1), verify.KindOrder, "", "lines were moved"},
	"writes swapped":       {events, swap(`"event":"client_write"`, 1), verify.KindOrder, "", "lines were moved"},
	"an event twice":       {events, line(`"event":"response_headers"`, 1, func(l string) string { return l + l }), verify.KindOrder, "", "a second response_headers"},
	"a chunk twice":        {events, line(`"event":"output_chunk"`, 1, func(l string) string { return l + l }), verify.KindOrder, "", "is there twice"},
	"a chunk's moment":     {events, line(`"event":"output_chunk"`, 2, bump(`"mono_ns":`, 1)), verify.KindValue, requests, "audio_gap_ms"},
	"a chunk's samples":    {events, line(`"event":"output_chunk"`, 2, bump(`"samples":`, 1)), verify.KindValue, requests, "audio.samples"},
	"a chunk's bytes":      {events, line(`"event":"output_chunk"`, 2, bump(`"bytes":`, 1)), verify.KindConservation, "", "were written"},
	"the first text":       {events, line(`"event":"first_text"`, 1, bump(`"offset":`, 1)), verify.KindValue, "", "first_text does not say so"},
	"the first audio":      {events, line(`"event":"first_audio"`, 1, once(`"mono_ns":\d+`, `"mono_ns":999999999999999`)), verify.KindOrder, "", "behind the last audio chunk"},
	"an event cut":         {events, line(`"event":"ingress"`, 2, func(l string) string { return l[:100] + "\n" }), verify.KindSchema, "", "the text ends early"},
	"a member gone":        {events, once(`"node":"[^"]*",`, ``), verify.KindSchema, "", "node is missing"},
	"a word":               {events, once(`"event":"ingress"`, `"event":"arrival"`), verify.KindSchema, "", `"arrival" is no word`},
	"below 0":              {events, once(`"mono_ns":`, `"mono_ns":-`), verify.KindSchema, "", "is below 0"},
	"a member twice":       {events, once(`"attempt":1`, `"attempt":1,"attempt":1`), verify.KindSchema, "", "attempt: a member stands there twice"},
	"another attempt":      {events, once(`"attempt":1`, `"attempt":2`), verify.KindValue, "", "attempt 2"},
	"another session":      {events, once(`"session_id":"ot`, `"session_id":"xx`), verify.KindValue, "", "session_id"},
	"another run":          {events, once(`"run_id":"2026`, `"run_id":"2027`), verify.KindValue, "", "run_id"},
	"heard gone":           {events, line(`"event":"heard_first"`, 1, gone), verify.KindOrder, "", "without the other end"},
	"all heard gone": {events, func(s string) string {
		return line(`"event":"heard_first"`, 1, gone)(line(`"event":"heard_last"`, 1, gone)(s))
	}, verify.KindValue, requests, "audible_s"},
	"heard for longer":     {events, line(`"event":"heard_last"`, 1, bump(`"samples":`, 1)), verify.KindValue, requests, "audible_s"},
	"heard elsewhere":      {events, line(`"event":"heard_last"`, 1, bump(`"mono_ns":`, 1)), verify.KindValue, "", "does not lie in chunk"},
	"heard at other rates": {events, line(`"event":"heard_last"`, 1, bump(`"sample_rate":`, 1)), verify.KindValue, "", "what is heard ends with"},
	"heard twice":          {events, line(`"event":"heard_last"`, 1, func(l string) string { return l + l }), verify.KindOrder, "", "a second heard_last"},
	"playable samples":     {events, line(`"event":"first_audio"`, 1, once(`"samples":\d+`, `"samples":3`)), verify.KindValue, "", "first_audio with 3 sample frames"},
	"empty audio gone":     {events, line(`"event":"empty_audio"`, 1, gone), verify.KindValue, requests, "audio.empty_events"},
	"a blocked write":      {events, line(`"event":"client_write"`, 1, once(`\}`, `,"wait_ns":70000000}`)), verify.KindValue, requests, "client_wait_ms"},
	"an alternative gone":  {events, line(`"event":"ingress_alternative"`, 1, gone), verify.KindValue, requests, "t_in_alternatives"},
	"a message gone":       {events, line(`"event":"request_message"`, 1, gone), verify.KindValue, requests, "bytes_up"},
	"input gone":           {events, line(`"event":"input_chunk"`, 2, gone), verify.KindOrder, "", "input_chunk"},
	"input not taken":      {events, line(`"event":"input_taken"`, 1, gone), verify.KindValue, requests, "input: true"},
	"less input taken":     {events, line(`"event":"input_taken"`, 1, once(`"count":\d+`, `"count":1`)), verify.KindValue, requests, "input.messages"},
	"more input taken":     {events, line(`"event":"input_taken"`, 1, once(`"count":\d+`, `"count":99`)), verify.KindOrder, "", "99 input_chunk events"},
	"another input":        {events, line(`"event":"input_chunk"`, 1, bump(`"wire_bytes":`, 1)), verify.KindValue, requests, "bytes_up"},
	"the server's byte":    {events, line(`"status":"server","offset"`, 1, once(`"status":"server"`, `"status":null`)), verify.KindValue, requests, "t_in_server_offset"},
	"a step more":          {events, line(`"event":"steps"`, 1, bump(`"count":`, 1)), verify.KindValue, requests, "stages[].steps"},
	"a larger batch":       {events, line(`"event":"steps"`, 1, bump(`"batch":`, 1)), verify.KindValue, requests, "stages[].batch"},
	"a sample gone":        {events, line(`"event":"cpu_usage"`, 2, gone), verify.KindValue, requests, "cpu_"},
	"polls gone":           {events, line(`"event":"polls"`, 1, gone), verify.KindValue, requests, "transfers[].misses"},
	"its taking gone":      {events, line(`"event":"receive_start"`, 1, gone), verify.KindValue, requests, "transfers[].in_flight_ms"},
	"another transfer":     {events, line(`"event":"receive_start"`, 1, once(`"transfer":\d+`, `"transfer":99`)), verify.KindOrphan, "", "transfer 99"},
	"two transfers in one": {events, line(`"event":"receive_start"`, 1, once(`"peer":"\w+"`, `"peer":"x"`)), verify.KindValue, "", "does not name what line"},
	"submitted gone":       {events, line(`"event":"submitted"`, 1, gone), verify.KindValue, requests, "critical_path"},
	"an output gone":       {events, line(`"event":"payload_received","mono_ns"`, 3, gone), verify.KindValue, requests, "critical_path"},
	"another state":        {events, once(`"status":"server-error"`, `"status":"success"`), verify.KindValue, requests, "terminal.state"},

	// the other files
	"a turn less":          {rundir.SessionsFile, once(`"turns":2`, `"turns":1`), verify.KindConservation, "", "turns: 1, the records have 2"},
	"session states":       {rundir.SessionsFile, once(`"states":\{"success":2\}`, `"states":{"success":1,"oom":1}`), verify.KindConservation, "", "states:"},
	"session bytes":        {rundir.SessionsFile, once(`"bytes_down":\d+`, `"bytes_down":1`), verify.KindConservation, "", "its turns have"},
	"a session gone":       {rundir.SessionsFile, line(`"session_id"`, 1, gone), verify.KindOrphan, requests, "no line in sessions.jsonl"},
	"a session twice":      {rundir.SessionsFile, line(`"session_id"`, 1, func(l string) string { return l + l }), verify.KindConservation, "", "not unique"},
	"a quality line gone":  {rundir.QualityFile, line(`"request_id"`, 1, gone), verify.KindOrphan, requests, "has no line for it"},
	"a quality line twice": {rundir.QualityFile, line(`"request_id"`, 1, func(l string) string { return l + l }), verify.KindOrphan, "", "without a record"},
	"a check's verdict":    {rundir.QualityFile, once(`"verdict":"passed"`, `"verdict":"failed"`), verify.KindValue, requests, "quality.failed"},
	"quality of schema 2":  {rundir.QualityFile, once(`"schema":1`, `"schema":2`), verify.KindVersion, "", "schema 2"},
	"topology of schema 3": {rundir.TopologyFile, once(`"schema": 1`, `"schema": 3`), verify.KindVersion, "", "schema 3"},
	"energy below 0":       {rundir.TopologyFile, once(`"schema": 1`, `"schema": 1, "gpu": [{"energy_j": -3}]`), verify.KindConservation, "", "gpu[0].energy_j: -3"},
	"the end ahead":        {rundir.MetadataFile, once(`("start": \{\s*"wall_ns": \d+,\s*"mono_ns": )`, `${1}9`), verify.KindConservation, "", "ended before it began"},
	"an experiment": {rundir.MetadataFile, once(`"sealed": (\w+)`, `"sealed": $1,
  "run": {"experiment": {"sha256": "00"}, "phases": []}`), verify.KindFile, rundir.ExperimentFile, "no such file"},
	"lost lines": {rundir.MetadataFile, once(`"lost_lines": 0`, `"lost_lines": 4`), verify.KindLost, requests, "4 lines were lost"},
}

// everything takes out all events of one request.
func everything(s string) string {
	id := regexp.MustCompile(`"request_id":"[^"]*"`).FindString(s)
	var out []string
	for _, l := range strings.SplitAfter(s, "\n") {
		if !strings.Contains(l, id) {
			out = append(out, l)
		}
	}
	return strings.Join(out, "")
}

func (x *tampering) fits(f *verify.Finding) bool {
	in := x.in
	if in == "" {
		in = x.file
	}
	return f.Level == verify.Error && f.Kind == x.kind && (in == "-" || f.File == in) && strings.Contains(f.String(), x.text)
}

// tamperingsServed are of the served run.
var tamperingsServed = map[string]tampering{
	"quiesce":            {requests, once(`"cancel_quiesce_ms":[\d.]+`, `"cancel_quiesce_ms":0.5`), verify.KindValue, "", "cancel_quiesce_ms: 0.5"},
	"quiesce, null":      {requests, once(`"cancel_quiesce_ms":[\d.]+`, `"cancel_quiesce_ms":null`), verify.KindValue, "", "cancel_quiesce_ms: null"},
	"the client's leave": {events, line(`"event":"close"`, 1, gone), verify.KindValue, requests, "cancel_quiesce_ms"},
	"client wait":        {requests, once(`"client_wait_ms":[1-9]\d*`, `"client_wait_ms":7`), verify.KindValue, "", "client_wait_ms: 7"},
	"a slow client":      {requests, once(`"client_slow",`, ``), verify.KindValue, "", "flags.client_slow: false"},
	"a blocked write":    {events, line(`"event":"client_wait"`, 2, gone), verify.KindValue, requests, "client_wait_ms"},
	"a blocked chunk":    {events, line(`"wait_ns"`, 1, once(`"wait_ns":\d+`, `"wait_ns":5`)), verify.KindValue, requests, "client_wait_ms"},
	"a late relay":       {events, line(`"event":"client_write"`, 1, once(`"mono_ns":(\d)`, `"mono_ns":9$1`)), verify.KindValue, requests, "flags.relay_lag"},
}

// everyTampering calls test with each way to change a run, and what unpacks the run.
func everyTampering(t *testing.T, test func(t *testing.T, run string, x tampering)) {
	t.Helper()
	for run, all := range map[string]map[string]tampering{"demo": tamperings, "served": tamperingsServed} {
		for name, x := range all {
			t.Run(run+"/"+name, func(t *testing.T) {
				t.Parallel()
				test(t, run, x)
			})
		}
	}
}

// A careful forger counts anew and seals anew: what was changed is still found, by
// what does not fit together, and named.
func TestTamperingOfAResealedRun(t *testing.T) {
	everyTampering(t, func(t *testing.T, run string, x tampering) {
		t.Helper()
		dir := unpack(t, run)
		edit(t, dir, x.file, x.change)
		if x.file != rundir.MetadataFile {
			recount(t, dir)
		}
		seal(t, dir)
		res := mustVerify(t, dir, verify.Options{})
		if res.OK() || find(res, x.fits) == nil {
			t.Errorf("want %s with %q, findings:%s", x.kind, x.text, list(res))
		}
		if f := find(res, func(f *verify.Finding) bool { return f.Kind == verify.KindSeal }); f != nil {
			t.Errorf("the seal is whole, and yet: %s", f)
		}
	})
}

// Everybody else is found by the hashes, too.
func TestTamperingOfASealedRun(t *testing.T) {
	everyTampering(t, func(t *testing.T, run string, x tampering) {
		t.Helper()
		dir := unpack(t, run)
		seal(t, dir)
		edit(t, dir, x.file, x.change)
		res := mustVerify(t, dir, verify.Options{})
		changed := func(f *verify.Finding) bool {
			return f.Kind == verify.KindSeal && f.File == x.file && strings.Contains(f.Text, "its hash is")
		}
		if res.OK() || find(res, changed) == nil {
			t.Errorf("the seal does not name %s:%s", x.file, list(res))
		}
	})
}

func TestTamperingWithFiles(t *testing.T) {
	put := func(name, text string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o400) }
	}
	remove := func(name string) func(dir string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	cases := map[string]struct {
		tamper func(dir string) error
		kind   verify.Kind
		text   string
	}{
		"a file added":        {put("notes.txt", "x"), verify.KindFile, "notes.txt: a file that SHA256SUMS does not name"},
		"a compressed copy":   {put("events.jsonl.gz", "\x1f\x8b"), verify.KindFile, "events.jsonl.gz: a file that SHA256SUMS does not name; compressed files are not read"},
		"a part added":        {put("calibration.json", "{}"), verify.KindFile, "calibration.json: a file that SHA256SUMS does not name"},
		"a broken part":       {put("calibration.json", "{"), verify.KindFile, "calibration.json: unexpected end"},
		"a file taken away":   {remove(rundir.EventsFile), verify.KindSeal, "events.jsonl: SHA256SUMS names it"},
		"events taken away":   {remove(rundir.EventsFile), verify.KindFile, "events.jsonl: it is not there"},
		"no events":           {remove(rundir.EventsFile), verify.KindLost, "events.jsonl: it holds no event: nothing of 34 requests can be derived"},
		"the seal taken away": {remove(rundir.SumsFile), verify.KindSeal, "unsealed: sealing did not come to its end"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := sealed(t)
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.tamper(dir); err != nil {
				t.Fatal(err)
			}
			res := mustVerify(t, dir, verify.Options{})
			if res.OK() || find(res, func(f *verify.Finding) bool { return f.Kind == c.kind && strings.Contains(f.String(), c.text) }) == nil {
				t.Errorf("want %s with %q, findings:%s", c.kind, c.text, list(res))
			}
		})
	}
}

func TestTamperingWithAHash(t *testing.T) {
	dir := sealed(t)
	edit(t, dir, rundir.SumsFile, func(s string) string { return strings.Repeat("0", 64) + s[64:] })
	res := mustVerify(t, dir, verify.Options{})
	if res.OK() || find(res, func(f *verify.Finding) bool {
		return f.Kind == verify.KindSeal && strings.Contains(f.String(), "events.jsonl: its hash is ")
	}) == nil {
		t.Errorf("findings:%s", list(res))
	}
}

// ingress finds when an event came.
var ingress = regexp.MustCompile(`"mono_ns":(\d+)`)

// What was written down ahead of the first request stays what it was, and requests
// belong to the part of the run that they began in.
func TestExperimentAndPhases(t *testing.T) {
	build := func(t *testing.T, experiment string) string {
		t.Helper()
		dir := demo(t)
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte("question: is it so?\n")))
		first := ingress.FindSubmatch(one(t, dir, events, `"event":"ingress"`))[1]
		edit(t, dir, rundir.MetadataFile, once(`"sealed": false`, `"sealed": false,
  "run": {"experiment": {"sha256": "`+sum+`"}, "phases": [{"name": "warmup", "start_ns": 1}, {"name": "measured", "start_ns": `+string(first)+`}]}`))
		edit(t, dir, requests, func(s string) string {
			return strings.Replace(strings.ReplaceAll(s, `"bytes_up":`, `"run_phase":"measured","bytes_up":`), `"measured"`, `"warmup"`, 2)
		})
		if err := os.WriteFile(filepath.Join(dir, rundir.ExperimentFile), []byte(experiment), 0o600); err != nil {
			t.Fatal(err)
		}
		recount(t, dir)
		return dir
	}
	dir := build(t, "question: is it so?\n")
	if res := mustVerify(t, dir, verify.Options{AllowUnsealed: true}); !res.OK() || res.Compared["run_phase"] != 34 {
		t.Errorf("%d phases, findings:%s", res.Compared["run_phase"], list(res))
	}
	for text, change := range map[string]func(string) string{
		`"cooldown" is no phase of the run`: once(`"run_phase":"warmup"`, `"run_phase":"cooldown"`),
		"run_phase: measured began at":      once(`"t_in":\d+`, `"t_in":1`),
	} {
		dir := build(t, "question: is it so?\n")
		edit(t, dir, requests, change)
		if text != `"cooldown" is no phase of the run` {
			edit(t, dir, requests, once(`"run_phase":"warmup"`, `"run_phase":"measured"`))
		}
		res := mustVerify(t, dir, verify.Options{AllowUnsealed: true})
		if find(res, func(f *verify.Finding) bool { return strings.Contains(f.String(), text) }) == nil {
			t.Errorf("nothing says %q:%s", text, list(res))
		}
	}
	res := mustVerify(t, build(t, "question: was it so?\n"), verify.Options{AllowUnsealed: true})
	if find(res, func(f *verify.Finding) bool {
		return f.File == rundir.ExperimentFile && strings.Contains(f.Text, "it was changed")
	}) == nil {
		t.Errorf("a changed experiment, findings:%s", list(res))
	}
}

// Copied runs lose their modes; their bytes are what counts.
func TestModesAreANote(t *testing.T) {
	dir := sealed(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	res := mustVerify(t, dir, verify.Options{})
	if !res.OK() || find(res, func(f *verify.Finding) bool { return strings.Contains(f.String(), "note: .: mode 0755") }) == nil {
		t.Errorf("findings:%s", list(res))
	}
}
