// Package longterm puts the long-term tier behind a store's claims: who is granted a key is asked for before it runs
// whether the key was at its end once, longer ago than its record was kept. A key that is remembered is parked, so that a
// person sees its message; it is neither run nor dropped.
//
// The order is claim, look, run. A look before the claim could miss a digest that is written in between; after it, what the
// claim found absent is in the digests (driver.LongTerm). Until the look is answered the claim is unknown, and repeated.
//
// A filter saves most looks. It is a hint: it answers "perhaps" to everything until it holds all digests there are, and
// again when it was not refreshed for almost as long as digests are announced before their records go.
package longterm
