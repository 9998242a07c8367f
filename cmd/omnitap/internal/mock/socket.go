package mock

import (
	"net/http"

	"github.com/gorilla/websocket"

	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/plan"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/session"
	"github.com/omnitap/omnitap/cmd/omnitap/internal/mock/truth"
)

// upgrade serves a WebSocket handshake. Not done means that the request is
// none that a session answers: it is a plain one, or a fault refuses it.
func (x *exchange) upgrade() (done bool) {
	if !websocket.IsWebSocketUpgrade(x.req.hr) || x.f.Status > 0 || x.f.ErrorForm == "json" {
		return false
	}
	kind := session.Kind(x.req.path, x.req.hr.URL.Query(), x.script)
	if kind == "" {
		x.rec.Update(func(t *truth.Truth) { t.Flow = "other" })
		x.play(plan.JSON(http.StatusForbidden, "")) // as uvicorn
		return true
	}
	x.rec.Update(func(t *truth.Truth) { t.Flow = kind })
	served := session.Run(session.Config{
		Conn: x.c.Conn, Request: x.req.hr, In: x.c.r, Base: x.own, Script: x.script, Dialect: x.c.srv.cfg.Dialect,
		Log: &x.c.srv.log, Record: x.rec, Rand: x.rng, Seed: x.seed, Hex: x.hex, Steps: x.c.srv.steps, Store: &x.c.srv.sessions,
		Entry: truth.Truth{Connection: x.c.id, Method: x.req.method, Path: x.req.path},
	}, kind)
	if !served {
		x.play(plan.JSON(http.StatusBadRequest, `{"detail":"bad WebSocket handshake"}`))
	}
	return true
}
