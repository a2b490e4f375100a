//! Random packets: mostly well-formed ones of every protocol that extraction knows, some with a wrong length,
//! a wrong number or an odd order of headers, some cut off, some with bytes overwritten.

/// Splitmix64: small, and good enough to choose test data.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// A packet with nothing wrong with it; extension headers and fragments included.
pub fn well_formed(rng: &mut Random) -> Vec<u8> {
    Builder { rng, wrong: usize::MAX }.frame()
}

/// A packet of which about every second has something wrong with it.
pub fn any(rng: &mut Random) -> Vec<u8> {
    if rng.one_in(50) {
        let n = rng.below(120);
        return rng.bytes(n);
    }
    let wrong = if rng.one_in(2) { 12 } else { usize::MAX };
    let mut frame = Builder { rng, wrong }.frame();
    if rng.one_in(6) {
        frame.truncate(rng.below(frame.len() + 1));
    }
    if rng.one_in(6) {
        mutate(rng, &mut frame);
    }
    frame
}

/// Overwrites, inserts or removes a few bytes, most of them where the headers are.
pub fn mutate(rng: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        if frame.is_empty() {
            return;
        }
        let at = rng.below(frame.len().min(90));
        match rng.below(8) {
            0 => frame.insert(at, rng.next() as u8),
            1 => drop(frame.remove(at)),
            2 => frame[at] ^= 1 << rng.below(8),
            3 => frame[at] = rng.pick(&[0, 1, 0xff, 0x7f, 0x80]),
            _ => frame[at] = rng.next() as u8,
        }
    }
}

struct Builder<'a> {
    rng: &'a mut Random,
    /// One in this many choices goes wrong.
    wrong: usize,
}

impl Builder<'_> {
    fn goes_wrong(&mut self) -> bool {
        self.wrong != usize::MAX && self.rng.one_in(self.wrong)
    }

    fn frame(mut self) -> Vec<u8> {
        let mut frame = self.rng.bytes(12);
        for _ in 0..self.rng.pick(&[0, 0, 0, 1, 1, 2, 3]) {
            frame.extend(self.rng.pick(&[0x8100u16, 0x8100, 0x88a8, 0x9100]).to_be_bytes());
            frame.extend(self.rng.bytes(2));
        }
        let (eth_type, body) = self.network();
        if self.rng.one_in(10) {
            self.llc(&mut frame, eth_type, body.len());
        } else {
            frame.extend(eth_type.to_be_bytes());
        }
        frame.extend(body);
        if self.rng.one_in(3) {
            let padding = self.rng.pick(&[1, 6, 18, 46, 300]);
            frame.extend(self.rng.bytes(padding));
        }
        frame
    }

    fn llc(&mut self, frame: &mut Vec<u8>, eth_type: u16, len: usize) {
        frame.extend((len as u16 & 0x3ff).to_be_bytes());
        let mut header = vec![0xaa, 0xaa, 3, 0, 0, 0];
        header.extend(if self.goes_wrong() { [5, 0xff] } else { eth_type.to_be_bytes() });
        if self.goes_wrong() {
            let at = self.rng.below(6);
            header[at] ^= 1;
        }
        frame.extend(header);
    }

    fn network(&mut self) -> (u16, Vec<u8>) {
        match self.rng.below(16) {
            0..6 => (0x0800, self.ipv4()),
            6..12 => (0x86dd, self.ipv6()),
            12 => (self.rng.pick(&[0x0806, 0x8035]), self.arp()),
            13 => (self.rng.pick(&[0x8847, 0x8848]), self.mpls()),
            14 => (0x894f, self.nsh()),
            _ => (self.rng.pick(&[0x88cc, 0x8809, 0x0600, 0x05ff, 0x88f7, 0xffff]), self.rng.bytes(50)),
        }
    }

    fn ipv4(&mut self) -> Vec<u8> {
        let proto = self.rng.pick(&[6, 6, 17, 17, 1, 2, 132, 47, 58]);
        let payload = self.transport(proto);
        let options = self.rng.pick(&[0, 0, 0, 1, 5, 10]) * 4;
        let mut ihl = 5 + options as u8 / 4;
        let mut total = (20 + options + payload.len()) as u16;
        if self.goes_wrong() {
            ihl = self.rng.below(16) as u8;
        }
        if self.goes_wrong() {
            total = self.wrong_length(total, &[19, 20, 27, 28, 31, 32, 39, 40]);
        }
        let version = if self.goes_wrong() { 6 } else { 4 };
        let frag = self.rng.pick(&[0u16, 0, 0, 0, 0x4000, 0x2000, 0x2001, 0x0010, 0x1fff, 0x8000]);
        let mut out = vec![version << 4 | ihl, self.rng.next() as u8];
        out.extend(total.to_be_bytes());
        out.extend(self.rng.bytes(2));
        out.extend(frag.to_be_bytes());
        out.extend([self.rng.next() as u8, proto]);
        out.extend(self.rng.bytes(10 + options));
        out.extend(payload);
        out
    }

    /// One off, just at the end of some header, or anything.
    fn wrong_length(&mut self, right: u16, ends: &[u16]) -> u16 {
        match self.rng.below(4) {
            0 => right.wrapping_add(self.rng.pick(&[1, u16::MAX])),
            1 | 2 => self.rng.pick(ends),
            _ => self.rng.below(usize::from(right) + 9) as u16,
        }
    }

    fn ipv6(&mut self) -> Vec<u8> {
        let proto = self.rng.pick(&[6, 6, 17, 17, 58, 58, 58, 132, 1, 59, 50, 41]);
        let mut payload = self.transport(proto);
        let mut next = proto;
        for _ in 0..self.rng.pick(&[0, 0, 0, 1, 2, 3, 5]) {
            let kind = self.rng.pick(&[0u8, 43, 44, 51, 60]);
            payload = self.extension(kind, next, payload);
            next = kind;
        }
        let mut len = payload.len() as u16;
        if self.goes_wrong() {
            len = self.wrong_length(len, &[0, 7, 8, 11, 12, 19, 20]);
        }
        let version = if self.goes_wrong() { 4 } else { 6 };
        let mut out = vec![version << 4 | self.rng.below(16) as u8];
        out.extend(self.rng.bytes(3));
        out.extend(len.to_be_bytes());
        out.extend([next, self.rng.next() as u8]);
        out.extend(self.rng.bytes(32));
        out.extend(payload);
        out
    }

    /// `payload` behind an extension header of the kind.
    fn extension(&mut self, kind: u8, next: u8, payload: Vec<u8>) -> Vec<u8> {
        let mut header = vec![next, 0];
        let bytes = match kind {
            44 => {
                header.extend(self.rng.pick(&[0u16, 0, 1, 6, 8, 0xfff9, 0x1230]).to_be_bytes());
                8
            }
            51 => {
                header[1] = self.rng.pick(&[1u8, 4]);
                (usize::from(header[1]) + 2) * 4
            }
            _ => {
                header[1] = self.rng.pick(&[0u8, 1, 3]);
                (usize::from(header[1]) + 1) * 8
            }
        };
        let rest = self.rng.bytes(bytes - header.len());
        header.extend(rest);
        if self.goes_wrong() {
            header[1] = self.rng.next() as u8;
        }
        header.extend(payload);
        header
    }

    fn transport(&mut self, proto: u8) -> Vec<u8> {
        let mut out = match proto {
            6 => {
                let words = self.rng.pick(&[5, 5, 8, 15]);
                let mut tcp = self.rng.bytes(words * 4);
                tcp[12] = (words as u8) << 4 | tcp[12] & 0xf;
                if self.goes_wrong() {
                    tcp[12] = self.rng.next() as u8;
                }
                tcp
            }
            132 => self.rng.bytes(12),
            58 if !self.rng.one_in(4) => self.neighbour(),
            _ => self.rng.bytes(8),
        };
        if self.goes_wrong() {
            out.truncate(self.rng.below(out.len()));
        } else {
            let extra = self.rng.pick(&[0, 0, 4, 22]);
            out.extend(self.rng.bytes(extra));
        }
        out
    }

    fn neighbour(&mut self) -> Vec<u8> {
        let mut out = vec![self.rng.pick(&[135, 136, 133]), 0];
        if self.goes_wrong() {
            out[1] = 1;
        }
        out.extend(self.rng.bytes(2 + 4 + 16));
        for _ in 0..self.rng.below(4) {
            let len = self.rng.pick(&[1u8, 1, 1, 2]);
            out.extend([self.rng.pick(&[1u8, 2, 2, 5]), if self.goes_wrong() { 0 } else { len }]);
            out.extend(if self.goes_wrong() { vec![0; 6] } else { self.rng.bytes(usize::from(len) * 8 - 2) });
        }
        out
    }

    fn arp(&mut self) -> Vec<u8> {
        let mut out = vec![0, 1, 8, 0, 6, 4, 0, self.rng.below(5) as u8];
        if self.goes_wrong() {
            let at = self.rng.below(8);
            out[at] ^= 1;
        }
        out.extend(self.rng.bytes(20));
        out
    }

    fn mpls(&mut self) -> Vec<u8> {
        let labels = 1 + self.rng.below(5);
        let mut out = self.rng.bytes(labels * 4 + 20);
        for i in 0..labels {
            out[i * 4 + 2] = out[i * 4 + 2] & 0xfe | u8::from(i + 1 == labels);
        }
        out
    }

    fn nsh(&mut self) -> Vec<u8> {
        let mdtype = self.rng.pick(&[1u8, 1, 2, 3]);
        let mut words = if mdtype == 1 { 6 } else { self.rng.pick(&[2u16, 3, 6]) };
        let mut version = 0;
        if self.goes_wrong() {
            words = self.rng.below(64) as u16;
        }
        if self.goes_wrong() {
            version = 1;
        }
        let flags_ttl = self.rng.next() as u16 & 0x3fc0;
        let mut out = (version << 14 | flags_ttl | words).to_be_bytes().to_vec();
        out.extend([mdtype, self.rng.below(6) as u8]);
        out.extend(self.rng.bytes(20));
        out
    }
}
