package telemetry

import (
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"

	"github.com/omnitap/omnitap/proxy/timeline"
)

// request writes a record into its span.
func (b *builder) request(x *outgoing, r *timeline.Record) {
	s := borrow()
	b.attributes(s, r)
	x.take(s, b.limits)
	points := [...]struct {
		name string
		at   *int64
	}{{eventText, r.Points.TText}, {eventAudio, r.Points.TAudio}, {eventAudible, r.Points.TAudible}}
	for _, p := range points {
		if p.at != nil {
			x.events = append(x.events, sdktrace.Event{Name: p.name, Time: b.clock.at(*p.at)})
		}
	}
	if failed(r.Terminal.State) {
		x.status = sdktrace.Status{Code: codes.Error, Description: clip(r.Terminal.Reason)}
	}
}

// failed reports whether a state is an error of the server, or of what lies before it.
// What the client brought about is none.
func failed(s timeline.State) bool {
	return s != timeline.Success && s != timeline.ClientCancelled && s != timeline.InvalidRequest
}

// set collects attributes, those alone that are there.
type set []attribute.KeyValue

// sets are used again: a span copies what it is given.
var sets = sync.Pool{New: func() any { s := make(set, 0, 48); return &s }}

func borrow() *set { return sets.Get().(*set) } //nolint:forcetypeassert // the pool holds nothing else

// done gives the set back.
func (s *set) done() {
	clear(*s) // it must not keep what a record held
	*s = (*s)[:0]
	sets.Put(s)
}

func (s *set) text(k attribute.Key, v string) {
	if v != "" {
		*s = append(*s, k.String(clip(v)))
	}
}

func (s *set) textOf(k attribute.Key, v *string) {
	if v != nil {
		s.text(k, *v)
	}
}

func (s *set) number(k attribute.Key, v *int64) {
	if v != nil {
		*s = append(*s, k.Int64(*v))
	}
}

func (s *set) integer(k attribute.Key, v *int) {
	if v != nil {
		*s = append(*s, k.Int(*v))
	}
}

func (s *set) float(k attribute.Key, v *float64) {
	if v != nil {
		*s = append(*s, k.Float64(*v))
	}
}

// seconds takes milliseconds.
func (s *set) seconds(k attribute.Key, ms *float64) {
	if ms != nil {
		*s = append(*s, k.Float64(*ms/1e3))
	}
}

// clip bounds what a client or a server may have made long, in bytes, and keeps nothing of
// the buffer that it was cut from. What is no UTF-8 is left out: OTLP refuses a whole batch
// for it.
func clip(s string) string {
	const limit = 256
	if len(s) <= limit {
		return strings.ToValidUTF8(s, "")
	}
	return strings.ToValidUTF8(strings.Clone(s[:limit]), "") + "…"
}

func (b *builder) attributes(s *set, r *timeline.Record) {
	s.text(keyFlow, r.Flow)
	s.text(keyDialect, r.Dialect)
	s.textOf(keyVariant, r.DialectVariant)
	if op := operation(r.Flow); op != "" {
		*s = append(*s, semconv.GenAIOperationNameKey.String(op), semconv.GenAIProviderNameKey.String(r.Dialect))
	}
	s.textOf(semconv.GenAIRequestModelKey, r.Model)
	s.textOf(semconv.GenAIResponseIDKey, r.ServerRequestID)
	if r.Stream != nil {
		*s = append(*s, semconv.GenAIRequestStreamKey.Bool(*r.Stream))
	}
	s.number(semconv.GenAIUsageOutputTokensKey, r.DeclaredTokens)
	s.textOf(semconv.HTTPRequestMethodKey, r.Method)
	s.textOf(semconv.URLPathKey, bare(r.Path))
	s.integer(semconv.HTTPResponseStatusCodeKey, r.Status)
	b.identity(s, r)
	ending(s, r)
	output(s, r)
	if r.OwnDelayUS != nil {
		*s = append(*s, keyDelay.Float64(r.OwnDelayUS.Max/1e6))
	}
	if len(r.Flags) > 0 {
		*s = append(*s, keyFlags.StringSlice(r.Flags))
	}
	if b.clock.borrowed {
		*s = append(*s, keyBorrowed.Bool(true))
	}
	if b.omitted > 0 {
		*s = append(*s, keyOmitted.Int(b.omitted))
	}
	if why := b.unmeasured(r); len(why) > 0 {
		*s = append(*s, keyUnmeasured.StringSlice(why))
	}
}

func (*builder) identity(s *set, r *timeline.Record) {
	s.text(keyRequest, r.RequestID)
	s.textOf(keySession, r.SessionID)
	s.integer(keyTurn, r.Turn)
	if r.Attempt > 1 {
		s.integer(keyAttempt, &r.Attempt)
	}
	*s = append(*s, keyConnection.Int64(int64(r.ConnectionID)))
	s.text(keyRun, r.RunID)
	s.text(keyPhase, r.RunPhase)
	s.textOf(keyZero, r.TInSource)
}

// ending is how it ended.
func ending(s *set, r *timeline.Record) {
	s.text(keyState, string(r.Terminal.State))
	s.text(keyReason, r.Terminal.Reason)
	s.text(keyEndPhase, r.Terminal.Phase)
	s.text(keyBy, r.Terminal.By)
	if failed(r.Terminal.State) {
		s.text(semconv.ErrorTypeKey, string(r.Terminal.State))
	}
	s.text(keyQuality, r.Quality.Verdict)
	s.text(keyAnalysis, r.Analysis)
}

// output is what came.
func output(s *set, r *timeline.Record) {
	switch {
	case r.AudioS != nil:
		*s = append(*s, semconv.GenAIOutputTypeSpeech)
	case r.TextUnits != nil && *r.TextUnits > 0:
		*s = append(*s, semconv.GenAIOutputTypeText)
	}
	s.number(keyUnits, r.TextUnits)
	s.textOf(keyUnit, r.TextUnit)
	s.float(keyDuration, r.AudioS)
	s.float(keyRTF, r.RTF)
	if a := r.Audio; a != nil {
		s.number(keySamples, a.Samples)
		s.number(keyRate, a.SampleRate)
		s.number(keyAssumed, a.AssumedSampleRate)
		s.number(keyChunks, &a.Chunks)
	}
	if p := r.Playback; p != nil {
		s.integer(keyUnderruns, &p.Underruns)
		s.seconds(keyStall, &p.StallMS)
	}
}

// unmeasured says why events and spans of the tree are missing.
func (b *builder) unmeasured(r *timeline.Record) []string {
	out := b.unknown
	for _, p := range [...]struct {
		name string
		null bool
	}{
		{"points.t_in", r.Points.TIn == nil},
		{"points.t_text", r.Points.TText == nil},
		{"points.t_audio", r.Points.TAudio == nil},
		{"points.t_audible", r.Points.TAudible == nil},
		{"points.t_term", r.Points.TTerm == nil},
		{"stages", r.Stages == nil},
		{"transfers", r.Transfers == nil},
	} {
		if why := r.Unmeasured[p.name]; p.null && why != "" {
			out = append(out, strings.TrimPrefix(p.name, "points.")+": "+clip(why))
		}
	}
	return out
}

// bare is a path without what may follow it: records have none, and spans must not.
func bare(path *string) *string {
	if path == nil {
		return nil
	}
	if i := strings.IndexAny(*path, "?#"); i >= 0 {
		p := (*path)[:i]
		return &p
	}
	return path
}

// operation is the conventions' word for a flow, empty for what asks no model.
func operation(flow string) string {
	switch flow {
	case timeline.FlowChat:
		return string(genaiconv.OperationNameChat)
	case timeline.FlowCompletion:
		return string(genaiconv.OperationNameTextCompletion)
	case timeline.FlowTranscription, timeline.FlowTranslation:
		return flow
	case timeline.FlowOther, timeline.FlowOpaque:
		return ""
	}
	return string(genaiconv.OperationNameGenerateContent)
}
