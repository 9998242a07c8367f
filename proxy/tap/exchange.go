package tap

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"mime"
	"strconv"
	"strings"

	"github.com/omnitap/omnitap/proxy/timeline"
	"github.com/omnitap/omnitap/proxy/wire/audio"
	"github.com/omnitap/omnitap/proxy/wire/dialect"
	"github.com/omnitap/omnitap/proxy/wire/http1"
	"github.com/omnitap/omnitap/proxy/wire/sse"
)

// bodyKind is how an answer's body is read.
type bodyKind uint8

const (
	bodyNone    bodyKind = iota // counted only
	bodyEvents                  // server-sent events
	bodySound                   // bytes of sound
	bodyWhole                   // one JSON text
	bodyRefusal                 // the text of an error status
)

// maxRefusal bounds the text of a refusal that is kept.
const maxRefusal = 64 << 10

// exchange is one request with its answer.
type exchange struct {
	c *Conn
	b *timeline.Builder

	method, contentType, encoded string
	upgrade                      string
	wantsUpgrade                 bool
	headed, requestLost          bool
	reqBody                      []byte
	asked                        *timeline.Asked // the request as it was sent, nil where it is not kept
	reqOver                      bool
	reqSum                       hash.Hash // nil without a body, or where some of it is missing
	reqGap                       bool
	startUp, startDown           int64
	endUp                        int64

	kind    bodyKind
	headIn  bool
	events  *sse.Parser
	buf     []byte
	over    bool
	lastOff int64
	family  dialect.Family
	known   bool // the flow is one whose events must be JSON
	nEvents int
	inflate *inflater
}

// requestOpen reports whether the rest of a request that was answered early is
// still to come.
func (x *exchange) requestOpen() bool {
	return x.c.current == x && !x.c.req.Lost() && x.c.closed[Client] == timeline.Open && x.c.closed[Server] == timeline.Open
}

func (x *exchange) requestBody(p []byte) {
	if x.reqSum == nil && !x.reqGap {
		x.reqSum = sha256.New()
	}
	if x.reqSum != nil {
		_, _ = x.reqSum.Write(p)
	}
	if x.reqOver || x.encoded != "" {
		return
	}
	if len(x.reqBody)+len(p) > x.c.cfg.MaxRequest {
		x.reqBody, x.reqOver = nil, true
		return
	}
	x.reqBody = append(x.reqBody, p...)
}

// keepHead notes the request as it is sent, where somebody wants that.
func (x *exchange) keepHead(h *http1.Head) {
	if !x.c.cfg.Timeline.Keeps(x.b.RequestID()) {
		return
	}
	x.asked = &timeline.Asked{Method: h.Method, Target: h.Target}
	for _, f := range h.Fields {
		x.asked.Header = append(x.asked.Header, [2]string{f.Name, f.Value})
	}
}

// requestEnd learns what the request asks for; the reading of the answer does
// not depend on it.
func (x *exchange) requestEnd(off int64) {
	x.endUp = off
	var q dialect.Request
	unread := ""
	switch {
	case x.reqOver:
		unread = fmt.Sprintf("request body over %d bytes", x.c.cfg.MaxRequest)
	case x.encoded != "":
		unread = "request body is " + x.encoded
	case len(x.reqBody) > 0:
		if q = x.c.reader.ReadRequest(x.contentType, x.reqBody); !q.Read {
			unread = "request body is neither JSON nor a form"
		}
	}
	if x.asked != nil && !x.reqOver && x.encoded == "" {
		x.asked.Body = x.reqBody
		x.b.Kept(x.asked)
	}
	if x.reqBody, x.asked = nil, nil; x.reqSum != nil {
		x.b.RequestSum(x.reqSum.Sum(nil))
		x.reqSum = nil
	}
	x.b.RequestEnd(off, q, unread)
	x.b.UpstreamSent(x.c.now, x.c.sent) // no-op until the write is reported
}

// gap notes bytes that were not kept.
func (x *exchange) gap(dir Dir, n int64) {
	x.b.Dropped(n)
	if dir == Client {
		x.reqOver, x.reqBody = true, nil
		x.reqSum, x.reqGap = nil, true
		return
	}
	x.b.Unread("bytes were not analysed")
	x.events, x.buf, x.kind = nil, nil, bodyNone
}

// answer chooses how the body is read, by media type and encoding alone.
func (x *exchange) answer(h *http1.Head) {
	a := timeline.Answer{Dialect: headDialect(h), RequestID: headID(h), Via: onTheWay(h), Server: short(h.Value("Server"))}
	media, params, err := mime.ParseMediaType(h.Value("Content-Type"))
	if err != nil {
		media = strings.ToLower(strings.TrimSpace(strings.Split(h.Value("Content-Type"), ";")[0]))
	}
	a.ContentType = media
	flow := x.b.Flow()
	x.known = flow != timeline.FlowOther && flow != timeline.FlowVideo
	switch {
	case h.Status >= 300:
		x.kind = bodyRefusal
	case media == "text/event-stream":
		x.kind, a.Events = bodyEvents, true
		declaredFormat(&a, h, nil)
		x.events = &sse.Parser{OnEvent: x.event, MaxEvent: x.c.cfg.MaxEvent}
	case strings.HasPrefix(media, "audio/"), (media == "application/octet-stream" || media == "") && flow == timeline.FlowSpeech:
		x.kind, a.Sound = bodySound, true
		x.soundHead(&a, h, params)
	case media == "application/json" || strings.HasSuffix(media, "+json"):
		x.kind, a.Whole = bodyWhole, true
	}
	if enc := strings.ToLower(strings.TrimSpace(h.Value("Content-Encoding"))); enc != "" && enc != "identity" {
		x.inflate = newInflater(enc, x.plain)
		if x.inflate == nil {
			x.kind, x.events, a.Events, a.Sound, a.Whole = bodyNone, nil, false, false, false
			x.b.Analysis("unsupported_encoding", "content-encoding "+enc)
		} else if a.Sound {
			a.Unit = "read" // borders of the wire say nothing about what was deflated
		}
	}
	x.b.AnswerHead(h.Status, a)
	if x.kind == bodySound {
		x.b.SoundStart()
	}
}

// onTheWay gathers what a head tells of things between the server and us.
func onTheWay(h *http1.Head) string {
	var found []string
	for _, name := range []string{"Via", "X-Accel-Buffering", "X-Cache"} {
		if v, ok := h.Get(name); ok {
			found = append(found, name+": "+short(v))
		}
	}
	return strings.Join(found, "; ")
}

// short bounds a field's value for a record.
func short(s string) string { return s[:min(len(s), 100)] }

// declaredFormat learns what a head declares of the samples behind it.
func declaredFormat(a *timeline.Answer, h *http1.Head, params map[string]string) {
	number := func(s string) int {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 0 || n > 1<<24 {
			return 0
		}
		return n
	}
	a.Rate, a.Channels, a.RateFrom = number(params["rate"]), number(params["channels"]), "content_type"
	if n := number(h.Value("X-Sample-Rate")); n > 0 {
		a.Rate, a.RateFrom = n, "header"
	}
	if n := number(h.Value("X-Channels")); n > 0 {
		a.Channels = n
	}
}

// soundHead learns how a body of sound is cut.
func (x *exchange) soundHead(a *timeline.Answer, h *http1.Head, params map[string]string) {
	declaredFormat(a, h, params)
	_, length := h.Get("Content-Length")
	switch {
	case h.Has("Transfer-Encoding", "chunked"):
		a.Unit = "http_chunk"
	case length:
		a.Unit = "body"
	default:
		a.Unit = "read"
	}
}

// headDialect tells the server by fields that only it sends.
func headDialect(h *http1.Head) string {
	for _, name := range []string{"X-SGLang-Omni-Speech-Id", "X-SGLang-Omni-Total-Tokens", "X-Finish-Reason", "X-Bit-Depth"} {
		if _, ok := h.Get(name); ok {
			return dialect.SGLangOmni
		}
	}
	if strings.HasPrefix(h.Value("Content-Type"), "audio/") && h.Value("Server") == "uvicorn" && h.Value("Vary") == "Origin" {
		return dialect.VLLMOmni
	}
	return ""
}

// headID returns the server's own id where it is one: others echo the client's.
func headID(h *http1.Head) string {
	if id := h.Value("X-SGLang-Omni-Speech-Id"); id != "" {
		return id
	}
	id := h.Value("X-Request-Id")
	for _, prefix := range []string{"speech-", "transcription-"} {
		if strings.HasPrefix(id, prefix) {
			return id
		}
	}
	return ""
}

func (x *exchange) part() string {
	if x.headIn {
		return "body"
	}
	return "head"
}

// body takes payload bytes as they lie on the wire.
func (x *exchange) body(p []byte, off int64) {
	x.headIn = true
	x.lastOff = off + int64(len(p)) - 1
	x.b.Body(len(p), x.lastOff)
	if x.inflate != nil {
		x.inflate.feed(p)
		return
	}
	x.content(p, audio.Pos{Off: off, Wire: true})
}

// plain takes inflated bytes; all of them were complete with the last wire byte.
func (x *exchange) plain(p []byte) { x.content(p, audio.Pos{Off: x.lastOff}) }

func (x *exchange) content(p []byte, pos audio.Pos) {
	switch x.kind {
	case bodyNone:
	case bodyEvents:
		x.events.Feed(p, pos.Off)
	case bodySound:
		x.b.Sound(p, pos)
	case bodyWhole:
		x.keep(p, x.c.cfg.MaxEvent)
	case bodyRefusal:
		x.keep(p, maxRefusal)
	}
}

func (x *exchange) keep(p []byte, limit int) {
	if x.over || len(x.buf)+len(p) > limit {
		x.over, x.buf = true, nil
		return
	}
	x.buf = append(x.buf, p...)
}

// event takes one server-sent event.
func (x *exchange) event(e sse.Event) {
	end := e.End
	if x.inflate != nil {
		end = x.lastOff
	}
	if e.Truncated {
		x.b.Analysis("truncated", fmt.Sprintf("event of %d bytes, over %d", e.Size, x.c.cfg.MaxEvent))
		return
	}
	x.c.reader.Brief = x.b.Learned()
	ev, err := x.c.reader.SSE(e.Type, e.Data, x.family)
	if err != nil {
		if x.known {
			x.b.Trouble("malformed_json", fmt.Sprintf("event %d: %v", x.nEvents, err))
		}
		x.nEvents++
		return
	}
	x.nEvents++
	if x.family == dialect.Other {
		x.family = ev.Family
	}
	x.b.Event(&ev, end)
}

// bodyEnd reads what only a whole body tells.
func (x *exchange) bodyEnd() {
	if x.inflate != nil {
		if err := x.inflate.close(); err != nil && x.headIn {
			x.b.Trouble("content_encoding", err.Error())
		}
	}
	switch x.kind {
	case bodyNone:
	case bodyEvents:
		x.events.Close(x.lastOff)
		x.endEvents()
	case bodySound:
		x.b.SoundEnd(x.lastOff)
	case bodyWhole:
		x.whole()
	case bodyRefusal:
		x.b.Refused(x.c.reader.Refusal(x.buf))
	}
	x.buf, x.events = nil, nil
}

func (x *exchange) endEvents() {
	if x.events.Pending() {
		x.b.Flag("unterminated_event")
	}
	if x.events.Comments > 0 {
		x.b.Flag("comments")
	}
}

func (x *exchange) whole() {
	if x.over {
		x.b.Analysis("truncated", fmt.Sprintf("JSON answer over %d bytes", x.c.cfg.MaxEvent))
		return
	}
	if len(x.buf) == 0 {
		return
	}
	ev, err := x.c.reader.Whole(x.buf)
	if err != nil {
		x.b.Trouble("malformed_json", err.Error())
		return
	}
	x.b.Event(&ev, x.lastOff)
}

// cut closes the accounts of an exchange whose answer did not come to its end.
func (x *exchange) cut(c *Conn) {
	if x.inflate != nil {
		_ = x.inflate.close() // it is cut with the rest
	}
	switch x.kind {
	case bodyNone, bodyWhole: // a JSON text that is cut tells nothing
	case bodyEvents:
		if x.events != nil {
			x.endEvents()
		}
	case bodySound:
		x.b.SoundEnd(x.lastOff)
	case bodyRefusal:
		x.b.Refused(c.reader.Refusal(x.buf))
	}
	x.buf, x.events, x.reqBody = nil, nil, nil
	c.answerEnd = c.read[Server]
	x.account(c)
}

// account counts the exchange's bytes on the wire.
func (x *exchange) account(c *Conn) {
	up, down := c.req.Offset()-x.startUp+1, int64(0)
	if x.endUp > 0 {
		up = x.endUp - x.startUp + 1
	}
	if c.tunnel == x {
		up = c.read[Client] - x.startUp + 1
	}
	if x.startDown > 0 {
		down = c.answerEnd - x.startDown + 1
	}
	x.b.AddBytes(up, down)
}
