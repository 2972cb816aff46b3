//! Pictures as one `f32` array per channel, 0 to 1, from PNG and to it.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use ndarray::Array2;
use png::{BitDepth, ColorType};

pub struct Picture {
    pub channels: Vec<Array2<f32>>,
    color: ColorType,
}

impl Picture {
    pub fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        let mut decoder = png::Decoder::new(BufReader::new(File::open(path)?));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info()?;
        let size = reader
            .output_buffer_size()
            .ok_or("the picture is too large")?;
        let mut bytes = vec![0; size];
        let info = reader.next_frame(&mut bytes)?;
        let samples = info.color_type.samples();
        let dim = (info.height as usize, info.width as usize);
        // Transparency, the last of 2 or 4 samples, stays as it is: it is not a channel of light.
        let (color, used) = match samples {
            1 | 2 => (ColorType::Grayscale, 1),
            _ => (ColorType::Rgb, 3),
        };
        let line = info.line_size;
        let channel = |channel: usize| {
            Array2::from_shape_fn(dim, |(row, column)| {
                f32::from(bytes[row * line + column * samples + channel]) / 255.0
            })
        };
        Ok(Self {
            channels: (0..used).map(channel).collect(),
            color,
        })
    }

    /// Writes planes of this picture's kind.
    pub fn write(&self, path: &Path, planes: &[&Array2<f32>]) -> Result<(), Box<dyn Error>> {
        let (height, width) = planes[0].dim();
        let mut encoder = png::Encoder::new(
            BufWriter::new(File::create(path)?),
            u32::try_from(width)?,
            u32::try_from(height)?,
        );
        encoder.set_color(self.color);
        encoder.set_depth(BitDepth::Eight);
        let mut bytes = Vec::with_capacity(height * width * planes.len());
        for index in ndarray::indices((height, width)) {
            for plane in planes {
                bytes.push((plane[index].clamp(0.0, 1.0) * 255.0).round() as u8);
            }
        }
        encoder.write_header()?.write_image_data(&bytes)?;
        Ok(())
    }
}

/// Weights of a Gaussian of standard deviation `sigma`, from `-3 sigma` to `3 sigma`; sum 1.
pub fn gaussian(sigma: f32) -> Vec<f32> {
    let reach = (3.0 * sigma).ceil() as i32;
    let weight = |step: i32| (-0.5 * (step as f32 / sigma).powi(2)).exp();
    let weights: Vec<f32> = (-reach..=reach).map(weight).collect();
    let sum: f32 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Standard deviation of the blur, in pixels.
pub const BLUR: f32 = 2.0;
/// Standard deviation of the neighbourhood of the local contrast, in pixels.
pub const NEIGHBOURHOOD: f32 = 8.0;
/// Strength of the denoising, and its steps.
pub const WEIGHT: f32 = 0.1;
pub const STEPS: usize = 30;
/// Step size of the denoising (Chambolle 2004: at most 1/4 in two dimensions).
pub const TAU: f32 = 0.25;
