// Package edgehttp makes effects over HTTP happen once, on both sides of a connection.
//
// For servers, [Middleware] makes endpoints idempotent: clients that retry get the first response again, and the
// handler's effect happens once. It follows the IETF draft "The Idempotency-Key HTTP Header Field"
// (draft-ietf-httpapi-idempotency-key-header) and Stripe's API (https://docs.stripe.com/api/idempotent_requests): 400
// for a missing or malformed key, 409 while the first request is in progress, 422 for the same key with another request,
// and otherwise the stored response with its status, headers and body, and the header Idempotent-Replayed: true. Errors
// are problem details (RFC 9457).
//
// For clients, [Transport] adds an idempotency key to the requests of handlers, the same in every attempt, and sends
// nothing once the lease of the attempt has ended.
package edgehttp
